// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// brokerMetrics shows what the embedded broker holds and what its clients do. It asks when it is
// scraped.
type brokerMetrics struct {
	statistics  func() broker.Statistics
	connections func() int // of clients, of all protocols
}

var (
	brokerMessages = prometheus.NewDesc("overdue_broker_messages",
		"Messages of the embedded broker by state; locked ones are active, and so are expired ones that no receive has moved yet.",
		[]string{"entity", "state"}, nil)
	brokerIncoming = prometheus.NewDesc("overdue_broker_incoming_messages_total",
		"Messages that clients have sent or scheduled on the embedded broker.", []string{"entity"}, nil)
	brokerOutgoing = prometheus.NewDesc("overdue_broker_outgoing_messages_total",
		"Messages that the embedded broker has delivered, each time that it did.", []string{"entity"}, nil)
	brokerSettled = prometheus.NewDesc("overdue_broker_settled_messages_total",
		"Messages that clients have settled on the embedded broker, by outcome; what was received and deleted is not among them.",
		[]string{"entity", "outcome"}, nil)
	brokerDeadLetters = prometheus.NewDesc("overdue_broker_dead_letters_total",
		"Messages that went to a dead-letter queue of the embedded broker, by reason. Beyond 50 reasons of an entity further ones count as other.",
		[]string{"entity", "reason"}, nil)
	brokerConnections = prometheus.NewDesc("overdue_broker_connections",
		"Connections of clients to the embedded broker, of all protocols together.", nil, nil)
	brokerLinks = prometheus.NewDesc("overdue_broker_links",
		"Links to entities of the embedded broker, by what their clients are.", []string{"role"}, nil)
	brokerErrors = prometheus.NewDesc("overdue_broker_errors_total",
		"What the embedded broker has refused to clients (links, sends, settlements, requests, tokens), by the condition of AMQP or the status of HTTP.",
		[]string{"condition"}, nil)
)

// Describe implements prometheus.Collector.
func (m brokerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		brokerMessages, brokerIncoming, brokerOutgoing, brokerSettled, brokerDeadLetters, brokerConnections, brokerLinks, brokerErrors,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m brokerMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	s := m.statistics()
	for i := range s.Entities {
		collectEntity(ch, &s.Entities[i])
	}
	gauge(brokerConnections, m.connections())
	gauge(brokerLinks, s.Senders, "sender")
	gauge(brokerLinks, s.Receivers, "receiver")
	for condition, n := range s.Refusals {
		ch <- counted(brokerErrors, n, condition)
	}
}

func counted(d *prometheus.Desc, value uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

// collectEntity shows what can be said of the kind of an entity: a topic gives nothing out, and a
// subscription is sent to by its topic alone.
func collectEntity(ch chan<- prometheus.Metric, e *broker.EntityStatistics) {
	for state, n := range map[string]int{
		"active":               e.Messages.Active,
		"scheduled":            e.Messages.Scheduled,
		"deferred":             e.Messages.Deferred,
		"dead_letter":          e.Messages.DeadLetter,
		"transfer_dead_letter": 0, // a forward is done, or its message a dead letter, before the send is acknowledged
	} {
		ch <- prometheus.MustNewConstMetric(brokerMessages, prometheus.GaugeValue, float64(n), e.Path, state)
	}
	if e.Kind != broker.KindSubscription {
		ch <- counted(brokerIncoming, e.Incoming, e.Path)
	}
	if e.Kind == broker.KindTopic {
		return
	}
	ch <- counted(brokerOutgoing, e.Outgoing, e.Path)
	for i, n := range e.Settled {
		ch <- counted(brokerSettled, n, e.Path, queue.Outcome(i).String())
	}
	reasons := map[string]uint64{queue.ReasonExpired: 0, queue.ReasonMaxDelivery: 0}
	maps.Copy(reasons, e.DeadLetters)
	for reason, n := range reasons {
		ch <- counted(brokerDeadLetters, n, e.Path, reason)
	}
}
