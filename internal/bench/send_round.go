// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// sendRound is the result of one way in one round.
type sendRound struct {
	rate                    float64 // messages per second
	client, sidecar, broker float64 // microseconds of processor time per message
}

// cpu returns the processor time per message of all processes together.
func (m sendRound) cpu() float64 { return m.client + m.sidecar + m.broker }

// A lane has the clients of one way in a round, and their results so far.
type lane struct {
	between int // process id of sidecar or HAProxy; 0: none
	senders []sender

	sent int
	took time.Duration
	cpu  [3]float64 // of client, sidecar and broker, in seconds
}

// used returns the processor time of client, sidecar and broker.
func (l *lane) used(broker *child) [3]float64 {
	used := [3]float64{processCPU(os.Getpid()), 0, processCPU(broker.cmd.Process.Pid)}
	if l.between != 0 {
		used[1] = processCPU(l.between)
	}
	return used
}

// slice makes the clients send for a span.
func (l *lane) slice(ctx context.Context, broker *child, span time.Duration) error {
	before, began := l.used(broker), time.Now()
	n, err := together(ctx, l.senders, span)
	l.sent += n
	l.took += time.Since(began)
	for i, after := range l.used(broker) {
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
		senders, shut, err := k.open(ctx, address, w.queue, plan.Payload)
		if err != nil {
			return nil, errors.Join(err, sc.complaint())
		}
		defer shut()
		if _, err := together(ctx, senders, plan.Span/slicesPerRound); err != nil { // warms up
			return nil, errors.Join(err, sc.complaint())
		}
		lanes[i] = &lane{between: between, senders: senders}
	}
	for i := range slicesPerRound {
		for j := range lanes {
			at := (turn + i + j) % len(lanes) // the first way differs
			if err := lanes[at].slice(ctx, sc.broker, plan.Span/slicesPerRound); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", ways[at].name, err), sc.complaint())
			}
		}
	}
	rounds := make([]sendRound, len(lanes))
	for i, l := range lanes {
		rounds[i] = l.result()
	}
	return rounds, nil
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
