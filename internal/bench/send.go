// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A way is a path of messages to the broker.
type way struct {
	name, what string
	companions string // of the sidecar on the way; "": no sidecar
	queue      string
}

var (
	wayDirect      = way{"direct", "straight to the broker", "", plainQueue}
	wayHAProxy     = way{"haproxy", "through HAProxy in TCP mode", "", plainQueue}
	wayUnmonitored = way{"unmonitored", "unmonitored sends", "each", plainQueue}
	wayEach        = way{"each", "monitored sends, companions: each", "each", workQueue}
	waySlot        = way{"slot", "monitored sends, companions: slot", "slot", workQueue}
)

// sendTarget returns the least ratio of a way to HAProxy's rate; 0: none. REST has none: the
// sidecar reads each request, and HAProxy does not.
func sendTarget(clients string, w way) float64 {
	switch {
	case clients == kindREST:
	case w == wayUnmonitored:
		return 1
	case clients == kindBatches:
		return 0.95
	case w == waySlot:
		return 0.8
	}
	return 0
}

// Send compares sends through the sidecar with sends straight to the broker, and through HAProxy if
// that is installed.
type Send struct {
	Rounds  int
	Span    time.Duration // of each way in a round
	Payload int           // bytes
	Clients []string      // some of ClientKinds
}

// haproxyHint says how to install HAProxy.
const haproxyHint = "HAProxy is not installed, so its ratios are left out; on Debian: apt-get install haproxy"

// SendResult is the result of Send.
type SendResult struct {
	Head
	Rounds       int   `json:"rounds"`
	SpanMs       int64 `json:"spanMs"`
	PayloadBytes int   `json:"payloadBytes"`
	// its version; null: not installed, and not measured
	HAProxy *string     `json:"haproxy"`
	Lines   []*sendLine `json:"lines"`
}

// sendLine has the medians of one kind of client on one way.
type sendLine struct {
	Clients           string  `json:"clients"`
	Way               string  `json:"way"`
	MessagesPerSecond float64 `json:"messagesPerSecond"`
	// of messages per second to the direct rate in the same round
	Ratio       float64    `json:"ratio"`
	RatioSpread [2]float64 `json:"ratioSpread"` // the lowest and the highest of the rounds
	// Cost is the processor time per message in all processes when sent directly ÷ the same on this
	// way. It would be the ratio of rates if the processors were the only bound. On a busy machine two
	// processes get more of them than one, and the ratio of rates flatters the sidecar.
	Cost          float64 `json:"cost"`
	ClientMicros  float64 `json:"clientMicros"`  // of processor time for a message
	SidecarMicros float64 `json:"sidecarMicros"` // or HAProxy's
	BrokerMicros  float64 `json:"brokerMicros"`
	// The same ratios, to HAProxy in TCP mode; null if it is not installed.
	HAProxyRatio       *float64    `json:"haproxyRatio"`
	HAProxyRatioSpread *[2]float64 `json:"haproxyRatioSpread"`
	HAProxyCost        *float64    `json:"haproxyCost"`

	way             way
	direct, haproxy comparison
}

// A comparison compares a way with another one.
type comparison struct {
	ratios []float64 // of messages per second, in each round
	cost   float64   // processor time of a message on the other way ÷ on this one; 0: unknown
}

// Measure measures one kind of client after the other.
func (plan *Send) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &SendResult{Head: p.head(), Rounds: plan.Rounds, SpanMs: plan.Span.Milliseconds(),
		PayloadBytes: plan.Payload}
	version, err := haproxyVersion(ctx)
	if err != nil {
		return nil, err
	}
	ways := []way{wayDirect}
	if version != "" {
		r.HAProxy = &version
		ways = append(ways, wayHAProxy)
	}
	ways = append(ways, wayUnmonitored, wayEach, waySlot)
	for _, k := range clientKinds {
		if slices.Contains(plan.Clients, k.name) {
			lines, err := plan.measure(ctx, p, k, ways, progress)
			if err != nil {
				return nil, err
			}
			r.Lines = append(r.Lines, lines...)
		}
	}
	return r, nil
}

// measure measures one kind of client on all ways, in turns.
func (plan *Send) measure(ctx context.Context, p *Program, k clientKind, ways []way, progress func(string)) ([]*sendLine, error) {
	rounds := map[string][]sendRound{} // by way
	for i := range plan.Rounds {
		progress(fmt.Sprintf("%s, round %d of %d", k.name, i+1, plan.Rounds))
		round, err := plan.round(ctx, p, k, ways, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		for j, m := range round {
			rounds[ways[j].name] = append(rounds[ways[j].name], m)
		}
	}
	lines := make([]*sendLine, len(ways))
	for i, w := range ways {
		lines[i] = newSendLine(k, w, rounds)
	}
	return lines, nil
}

// newSendLine calculates the medians of the rounds of a way, and compares it with others.
func newSendLine(k clientKind, w way, byWay map[string][]sendRound) *sendLine {
	rounds := byWay[w.name]
	l := &sendLine{
		Clients: k.name, Way: w.name, way: w,
		MessagesPerSecond: medianOfRounds(rounds, func(m sendRound) float64 { return m.rate }),
		ClientMicros:      medianOfRounds(rounds, func(m sendRound) float64 { return m.client }),
		SidecarMicros:     medianOfRounds(rounds, func(m sendRound) float64 { return m.sidecar }),
		BrokerMicros:      medianOfRounds(rounds, func(m sendRound) float64 { return m.broker }),
	}
	l.direct = compare(rounds, byWay[wayDirect.name])
	l.Ratio, l.RatioSpread[0], l.RatioSpread[1] = medianOf(l.direct.ratios)
	l.Cost = l.direct.cost
	if others := byWay[wayHAProxy.name]; others != nil {
		l.haproxy = compare(rounds, others)
		median, lowest, highest := medianOf(l.haproxy.ratios)
		l.HAProxyRatio, l.HAProxyRatioSpread, l.HAProxyCost = &median, &[2]float64{lowest, highest},
			&l.haproxy.cost
	}
	return l
}

func compare(rounds, others []sendRound) (c comparison) {
	for i, m := range rounds {
		c.ratios = append(c.ratios, m.rate/others[i].rate)
	}
	if cost := medianOfRounds(rounds, sendRound.cpu); cost > 0 {
		c.cost = rounded(medianOfRounds(others, sendRound.cpu) / cost)
	}
	return c
}

func medianOfRounds(all []sendRound, f func(sendRound) float64) float64 {
	values := make([]float64, len(all))
	for i, m := range all {
		values[i] = f(m)
	}
	m, _, _ := medianOf(values)
	return m
}

// Figures are the ratios. The targets compare with HAProxy, a relay like the sidecar.
func (r *SendResult) Figures() (all []Figure) {
	for _, l := range r.Lines {
		if l.Way == wayDirect.name {
			continue
		}
		name, about := "send."+l.Clients+"."+l.Way, l.way.what+" ÷ %s, "+l.Clients
		direct := Figure{Name: name, What: fmt.Sprintf(about, "direct")}.among(l.direct.ratios)
		cost := Figure{Name: name + ".cost", What: "… for the same processor time", Value: l.Cost}
		if l.HAProxyRatio == nil || l.Way == wayHAProxy.name {
			all = append(all, direct, cost)
			continue
		}
		f := Figure{Name: name + ".haproxy",
			What: fmt.Sprintf(about, "HAProxy")}.among(l.haproxy.ratios)
		if target := sendTarget(l.Clients, l.way); target > 0 {
			f = f.atLeast(target)
		}
		direct.What, cost.What = "… ÷ direct", "… ÷ direct, for the same processor time"
		all = append(all, f, Figure{Name: f.Name + ".cost", What: "… for the same processor time",
			Value: *l.HAProxyCost}, direct, cost)
	}
	return all
}

// WriteTable writes a row for each kind of client and way.
func (r *SendResult) WriteTable(w io.Writer) error {
	rows := [][]string{{
		"", "messages/s", "÷ HAProxy", "range", "CPU", "÷ direct", "CPU",
		"client µs", "sidecar", "broker",
	}}
	clients := ""
	for _, l := range r.Lines {
		if l.Clients != clients {
			clients = l.Clients
			rows = append(rows, append([]string{clients}, make([]string, len(rows[0])-1)...))
		}
		row := []string{"  " + l.Way, fmt.Sprintf("%.0f", l.MessagesPerSecond), "–", "–", "–"}
		if l.HAProxyRatio != nil {
			row[2] = fmt.Sprintf("%.2f", *l.HAProxyRatio)
			row[3] = fmt.Sprintf("%.2f–%.2f", l.HAProxyRatioSpread[0], l.HAProxyRatioSpread[1])
			row[4] = fmt.Sprintf("%.2f", *l.HAProxyCost)
		}
		for _, v := range []float64{l.Ratio, l.Cost, l.ClientMicros, l.SidecarMicros, l.BrokerMicros} {
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		rows = append(rows, row)
	}
	against := haproxyHint
	if r.HAProxy != nil {
		against = "HAProxy " + *r.HAProxy
	}
	headline := fmt.Sprintf("%d rounds of %d ms for each way, payloads of %d bytes, %s\n%s",
		r.Rounds, r.SpanMs, r.PayloadBytes, r.where(), against)
	return writeReport(w, headline, rows, "", r.Figures())
}

// sendRound is the result of one way in one round.
type sendRound struct {
	rate                    float64 // messages per second
	client, sidecar, broker float64 // microseconds of processor time per message
}

// cpu returns the processor time per message of all processes together.
func (m sendRound) cpu() float64 { return m.client + m.sidecar + m.broker }

// A lane has the clients of one way in a round, and their results so far.
type lane struct {
	name    string
	pids    [3]int // of client, sidecar or HAProxy, and broker; 0: none
	senders []sender

	sent int
	took time.Duration
	cpu  [3]float64 // of the same processes, in seconds
}

// open opens the clients and lets them warm up. A round gives the lane span of time.
func (l *lane) open(ctx context.Context, k clientKind, address, queue string, payload int,
	span time.Duration) (shut func(), err error) {
	if l.senders, shut, err = k.open(ctx, address, queue, payload); err != nil {
		return nil, err
	}
	if _, err := together(ctx, l.senders, span/slicesPerRound); err != nil {
		shut()
		return nil, err
	}
	return shut, nil
}

// used returns the processor time of the processes so far.
func (l *lane) used() (cpu [3]float64) {
	for i, pid := range l.pids {
		if pid != 0 {
			cpu[i] = processCPU(pid)
		}
	}
	return cpu
}

// slice makes the clients send for a span.
func (l *lane) slice(ctx context.Context, span time.Duration) error {
	before, began := l.used(), time.Now()
	n, err := together(ctx, l.senders, span)
	l.sent += n
	l.took += time.Since(began)
	for i, after := range l.used() {
		l.cpu[i] += after - before[i]
	}
	return err
}

// result returns the sum of the slices.
func (l *lane) result() sendRound {
	each := func(seconds float64) float64 { return rounded(seconds * 1e6 / float64(l.sent)) }
	return sendRound{rate: rounded(float64(l.sent) / l.took.Seconds()), client: each(l.cpu[0]),
		sidecar: each(l.cpu[1]), broker: each(l.cpu[2])}
}

// slicesPerRound is the number of slices that each way has in a round. The ways take turns, so that
// other load on the machine affects all of them.
const slicesPerRound = 5

// round measures all ways once, with one broker.
func (plan *Send) round(ctx context.Context, p *Program, k clientKind, ways []way, turn int) (_ []sendRound, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	lanes := make([]*lane, len(ways))
	for i, w := range ways {
		address, between, err := sc.open(ctx, w)
		if err != nil {
			return nil, err
		}
		l := &lane{
			name: w.name,
			pids: [3]int{os.Getpid(), between, sc.broker.cmd.Process.Pid},
		}
		shut, err := l.open(ctx, k, address, w.queue, plan.Payload, plan.Span)
		if err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		defer shut()
		lanes[i] = l
	}
	if err := takeTurns(ctx, lanes, plan.Span, turn); err != nil {
		return nil, errors.Join(err, sc.complaint())
	}
	rounds := make([]sendRound, len(lanes))
	for i, l := range lanes {
		rounds[i] = l.result()
	}
	return rounds, nil
}

// takeTurns makes the clients of each lane send for span in all, in slices. Another lane is the
// first in each round.
func takeTurns(ctx context.Context, lanes []*lane, span time.Duration, round int) error {
	for i := range slicesPerRound {
		for j := range lanes {
			l := lanes[(round+i+j)%len(lanes)]
			if err := l.slice(ctx, span/slicesPerRound); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// together makes the senders send in parallel for a span, each at least once, and counts the
// messages.
func together(ctx context.Context, senders []sender, span time.Duration) (int, error) {
	var n atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, send := range senders {
		g.Go(func() error {
			for more := true; more; more = time.Since(began) < span {
				k, err := send(ctx)
				if err != nil {
					return fmt.Errorf("send: %w", err)
				}
				n.Add(int64(k))
			}
			return nil
		})
	}
	err := g.Wait()
	return int(n.Load()), err
}
