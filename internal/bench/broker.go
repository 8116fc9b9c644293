// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Broker compares sends to a broker that keeps its queues in a directory with sends to one that
// keeps them in memory.
type Broker struct {
	Rounds    int
	Span      time.Duration // of each broker in a round
	Payload   int           // bytes
	Directory string        // in which each round makes one, and removes it
}

// BrokerResult is the result of Broker.
type BrokerResult struct {
	Head
	Rounds       int    `json:"rounds"`
	SpanMs       int64  `json:"spanMs"`
	PayloadBytes int    `json:"payloadBytes"`
	Directory    string `json:"directory"`
	// of syncedBytes appended to a file there, without a broker
	SyncMs float64       `json:"syncMs"`
	Lines  []*brokerLine `json:"lines"`
}

// brokerLine has the medians of one kind of client.
type brokerLine struct {
	Clients          string  `json:"clients"`
	MemoryPerSecond  float64 `json:"memoryPerSecond"` // messages
	DurablePerSecond float64 `json:"durablePerSecond"`
	// of the durable rate to the one in memory in the same round
	Ratio       float64    `json:"ratio"`
	RatioSpread [2]float64 `json:"ratioSpread"` // the lowest and the highest of the rounds
	// of processor time for a message
	MemoryMicros  float64 `json:"memoryMicros"`
	DurableMicros float64 `json:"durableMicros"`
	// of the durable broker
	CommitMs          float64 `json:"commitMs"`
	MessagesPerCommit float64 `json:"messagesPerCommit"`

	clients brokerClients
	ratios  []float64
}

// brokerClients are clients of both brokers, with the least ratio.
type brokerClients struct {
	clientKind
	what   string
	target float64
}

const kindOneBatches = "one-batches"

var allBrokerClients = []brokerClients{
	{
		clientKind: clientKind{kindOneBatches, sdkClients{senders: 1, connections: 1}.openBatches},
		what:       fmt.Sprintf("batches of %d from one sender", batchSize),
		target:     0.4,
	},
	{
		clientKind: clientKind{kindSingle, sdkClients{senders: parallelSenders, connections: 1}.open},
		what:       fmt.Sprintf("one message at a time from %d senders", parallelSenders),
		target:     0.3,
	},
}

// Measure measures one kind of client after the other.
func (plan *Broker) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &BrokerResult{
		Head:         p.head(),
		Rounds:       plan.Rounds,
		SpanMs:       plan.Span.Milliseconds(),
		PayloadBytes: plan.Payload,
		Directory:    plan.Directory,
	}
	var syncs []float64
	for _, k := range allBrokerClients {
		var rounds []*brokerRound
		for i := range plan.Rounds {
			progress(fmt.Sprintf("%s, round %d of %d", k.name, i+1, plan.Rounds))
			round, err := plan.round(ctx, p, k.clientKind, i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			rounds = append(rounds, round)
			syncs = append(syncs, round.syncMs)
		}
		r.Lines = append(r.Lines, newBrokerLine(k, rounds))
	}
	r.SyncMs, _, _ = medianOf(syncs)
	return r, nil
}

// newBrokerLine calculates the medians of the rounds.
func newBrokerLine(k brokerClients, rounds []*brokerRound) *brokerLine {
	median := func(f func(*brokerRound) float64) float64 {
		values := make([]float64, len(rounds))
		for i, m := range rounds {
			values[i] = f(m)
		}
		v, _, _ := medianOf(values)
		return v
	}
	l := &brokerLine{
		Clients:           k.name,
		MemoryPerSecond:   median(func(m *brokerRound) float64 { return m.memory.rate }),
		DurablePerSecond:  median(func(m *brokerRound) float64 { return m.durable.rate }),
		MemoryMicros:      median(func(m *brokerRound) float64 { return m.memory.broker }),
		DurableMicros:     median(func(m *brokerRound) float64 { return m.durable.broker }),
		CommitMs:          median(func(m *brokerRound) float64 { return m.commitMs }),
		MessagesPerCommit: median(func(m *brokerRound) float64 { return m.perCommit }),
		clients:           k,
	}
	for _, m := range rounds {
		l.ratios = append(l.ratios, m.durable.rate/m.memory.rate)
	}
	l.Ratio, l.RatioSpread[0], l.RatioSpread[1] = medianOf(l.ratios)
	return l
}

// Figures are the ratios, and what a commit takes.
func (r *BrokerResult) Figures() (all []Figure) {
	for _, l := range r.Lines {
		name := "broker." + l.Clients
		all = append(all,
			Figure{
				Name: name,
				What: "sends to a durable broker ÷ to one in memory, " + l.clients.what,
			}.among(l.ratios).atLeast(l.clients.target),
			Figure{
				Name:  name + ".commit",
				What:  fmt.Sprintf("… a commit, of %.0f messages", l.MessagesPerCommit),
				Value: l.CommitMs,
				Unit:  "ms",
			})
	}
	return all
}

// WriteTable writes a row for each kind of client.
func (r *BrokerResult) WriteTable(w io.Writer) error {
	rows := [][]string{{
		"", "in memory/s", "durable/s", "ratio", "range", "broker µs", "durable", "commit ms", "messages in it",
	}}
	for _, l := range r.Lines {
		rows = append(rows, []string{
			l.Clients,
			fmt.Sprintf("%.0f", l.MemoryPerSecond),
			fmt.Sprintf("%.0f", l.DurablePerSecond),
			fmt.Sprintf("%.2f", l.Ratio),
			fmt.Sprintf("%.2f–%.2f", l.RatioSpread[0], l.RatioSpread[1]),
			fmt.Sprintf("%.2f", l.MemoryMicros),
			fmt.Sprintf("%.2f", l.DurableMicros),
			fmt.Sprintf("%.2f", l.CommitMs),
			fmt.Sprintf("%.0f", l.MessagesPerCommit),
		})
	}
	headline := fmt.Sprintf("%d rounds of %d ms for each broker, payloads of %d bytes, %s\nThe disk of %s syncs %d KiB in %.2f ms.",
		r.Rounds, r.SpanMs, r.PayloadBytes, r.where(), r.Directory, syncedBytes>>10, r.SyncMs)
	return writeReport(w, headline, rows, "", r.Figures())
}

// brokerRound is the result of one round.
type brokerRound struct {
	memory, durable sendRound
	syncMs          float64
	commitMs        float64
	perCommit       float64 // messages
}

// round measures both brokers once, on a directory of its own.
func (plan *Broker) round(ctx context.Context, p *Program, k clientKind, turn int) (_ *brokerRound, err error) {
	dir, err := os.MkdirTemp(plan.Directory, "overdue-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the broker: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	syncMs, err := measureSync(dir)
	if err != nil {
		return nil, fmt.Errorf("measure the disk of %s: %w", plan.Directory, err)
	}
	memory, err := plan.start(ctx, p, k, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, memory.stop()) }()
	durable, err := plan.start(ctx, p, k, filepath.Join(dir, "broker"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.stop()) }()
	before, err := durable.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	if err := takeTurns(ctx, []*lane{memory.lane, durable.lane}, plan.Span, turn); err != nil {
		return nil, errors.Join(err, memory.scene.complaint(), durable.scene.complaint())
	}
	after, err := durable.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	commits := after[sampleCommits] - before[sampleCommits]
	if commits == 0 {
		return nil, errors.New("the durable broker has committed nothing")
	}
	return &brokerRound{
		memory:    memory.lane.result(),
		durable:   durable.lane.result(),
		syncMs:    syncMs,
		commitMs:  rounded(1000 * (after[sampleCommitSeconds+"_sum"] - before[sampleCommitSeconds+"_sum"]) / commits),
		perCommit: rounded(float64(durable.lane.sent) / commits),
	}, nil
}

// A measuredBroker is a broker with its clients.
type measuredBroker struct {
	scene *scene
	lane  *lane
	shut  func()
}

// start starts a broker on a directory, in memory if there is none.
func (plan *Broker) start(ctx context.Context, p *Program, k clientKind, directory string) (*measuredBroker, error) {
	sc, err := startBrokerOn(ctx, p, directory)
	if err != nil {
		return nil, err
	}
	l := &lane{
		name: "in memory",
		pids: [3]int{os.Getpid(), 0, sc.broker.cmd.Process.Pid},
	}
	if directory != "" {
		l.name = "durable"
	}
	shut, err := l.open(ctx, k, sc.upstream, plainQueue, plan.Payload, plan.Span)
	if err != nil {
		return nil, errors.Join(err, sc.complaint(), sc.stop())
	}
	return &measuredBroker{
		scene: sc,
		lane:  l,
		shut:  shut,
	}, nil
}

func (b *measuredBroker) stop() error {
	b.shut()
	return b.scene.stop()
}

const (
	syncedBytes = 4 << 10
	syncs       = 50
)

// measureSync returns the median time in milliseconds of a small write and its sync.
func measureSync(dir string) (ms float64, err error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, syncedBytes)
	all := make([]float64, syncs)
	for i := range all {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all[i] = inMilliseconds(time.Since(began))
	}
	ms, _, _ = medianOf(all)
	return ms, nil
}
