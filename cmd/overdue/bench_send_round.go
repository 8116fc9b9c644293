// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/httpclient"
)

// benchAtOnce is how many clients send side by side.
const benchAtOnce = 16

// A benchWorker sends, again and again; it returns how many messages that was.
type benchWorker func(ctx context.Context) (int, error)

// A benchSendKind is one kind of client.
type benchSendKind struct {
	name string
	open func(ctx context.Context, c *benchChild, queue string, payload int) (workers []benchWorker, shut func(), err error)
}

var benchSendKinds = []benchSendKind{
	{"batches", openSDK(1, true)},
	{"single", openSDK(1, false)},
	{"spread", openSDK(benchAtOnce, false)},
	{"rest", openREST},
}

// address is where a client of AMQP or REST connects to: the door, if there is one. They are on one port each.
func (c *benchChild) address() string {
	if c.door != "" {
		return c.door
	}
	return c.broker
}

// openSDK has senders of the Go SDK on so many connections. Every message lives for an hour, which is its deadline where it is
// monitored, and has no message-id, as the SDK sends it: the door has to make one for what is monitored.
func openSDK(connections int, batches bool) func(context.Context, *benchChild, string, int) ([]benchWorker, func(), error) {
	return func(ctx context.Context, c *benchChild, queue string, payload int) ([]benchWorker, func(), error) {
		return benchWorkersOf(ctx, c.address(), queue, payload, benchAtOnce, connections, batches)
	}
}

// benchWorkersOf are n such senders.
func benchWorkersOf(ctx context.Context, address, queue string, payload, n, connections int, batches bool) ([]benchWorker, func(), error) {
	senders, shut, err := benchSendersOf(ctx, address, queue, n, connections)
	if err != nil {
		return nil, nil, err
	}
	body, hour := bytes.Repeat([]byte("x"), payload), time.Hour
	message := func(int) *azservicebus.Message { return &azservicebus.Message{Body: body, TimeToLive: &hour} }
	workers := make([]benchWorker, len(senders))
	for i, s := range senders {
		workers[i] = func(ctx context.Context) (int, error) { return 1, s.SendMessage(ctx, message(0), nil) }
		if batches { // each is made anew: to encode the messages is what a sender does
			workers[i] = func(ctx context.Context) (int, error) { return benchBatch, sendBatches(ctx, s, 0, benchBatch, message) }
		}
	}
	return workers, shut, nil
}

// openREST has HTTP clients that post the same message.
func openREST(_ context.Context, c *benchChild, queue string, payload int) ([]benchWorker, func(), error) {
	transport := &http.Transport{MaxIdleConnsPerHost: benchAtOnce}
	client := httpclient.New(transport, time.Minute)
	url, body := "http://"+c.address()+"/"+queue+"/messages", bytes.Repeat([]byte("x"), payload)
	send := func(ctx context.Context) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("BrokerProperties", `{"TimeToLive":3600}`)
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close() // read
		if err == nil && resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("post a message: %s: %s", resp.Status, clip(string(answer)))
		}
		return 1, err
	}
	workers := make([]benchWorker, benchAtOnce)
	for i := range workers {
		workers[i] = send
	}
	return workers, transport.CloseIdleConnections, nil
}

// benchSendRound is what was measured on one way in one round.
type benchSendRound struct {
	rate                    float64 // messages per second
	client, sidecar, broker float64 // microseconds of processor time per message
}

// cpu is what a message costs all processes together.
func (m benchSendRound) cpu() float64 { return m.client + m.sidecar + m.broker }

// A benchStand is the clients of one way in a round, and what they have done so far.
type benchStand struct {
	sidecar *benchChild // nil: none
	workers []benchWorker

	sent int
	took time.Duration
	cpu  [3]float64 // of client, sidecar and broker, in seconds
}

// used is the processor time of client, sidecar and broker.
func (s *benchStand) used(broker *benchChild) [3]float64 {
	used := [3]float64{processCPU(os.Getpid()), 0, processCPU(broker.cmd.Process.Pid)}
	if s.sidecar != nil {
		used[1] = processCPU(s.sidecar.cmd.Process.Pid)
	}
	return used
}

// slice has the clients send for a while.
func (s *benchStand) slice(ctx context.Context, broker *benchChild, span time.Duration) error {
	before, began := s.used(broker), time.Now()
	n, err := together(ctx, s.workers, span)
	s.sent += n
	s.took += time.Since(began)
	for i, after := range s.used(broker) {
		s.cpu[i] += after - before[i]
	}
	return err
}

// result is what the slices have come to.
func (s *benchStand) result() benchSendRound {
	each := func(seconds float64) float64 { return rounded(seconds * 1e6 / float64(s.sent)) }
	return benchSendRound{rate: rounded(float64(s.sent) / s.took.Seconds()), client: each(s.cpu[0]), sidecar: each(s.cpu[1]), broker: each(s.cpu[2])}
}

// benchSlices is in how many pieces a round cuts the span of each way. The ways take turns with them, so that what else the
// machine does at a time hits all of them.
const benchSlices = 5

// round measures all ways once, before one broker.
func (plan *benchSendPlan) round(ctx context.Context, k benchSendKind, ways []benchWay, turn int) (_ []benchSendRound, err error) {
	scene, err := setBenchScene(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.stop()) }()
	stands := make([]*benchStand, len(ways))
	for i, w := range ways {
		s := &benchStand{}
		target := scene.broker
		if w.companions != "" {
			if s.sidecar, err = scene.sidecar(ctx, scene.broker.broker, w.companions); err != nil {
				return nil, err
			}
			target = s.sidecar
		}
		var shut func()
		if s.workers, shut, err = k.open(ctx, target, w.queue, plan.payload); err != nil {
			return nil, errors.Join(err, scene.complaint())
		}
		defer shut()
		if _, err := together(ctx, s.workers, plan.span/benchSlices); err != nil { // warms all up
			return nil, errors.Join(err, scene.complaint())
		}
		stands[i] = s
	}
	for i := range benchSlices {
		for j := range stands {
			at := (turn + i + j) % len(stands) // who is first differs
			if err := stands[at].slice(ctx, scene.broker, plan.span/benchSlices); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", ways[at].name, err), scene.complaint())
			}
		}
	}
	rounds := make([]benchSendRound, len(stands))
	for i, s := range stands {
		rounds[i] = s.result()
	}
	return rounds, nil
}

// together has the workers work side by side for a span, once at least, and counts what they have done.
func together(ctx context.Context, workers []benchWorker, span time.Duration) (int, error) {
	var n atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	began := time.Now()
	for i, work := range workers {
		wg.Go(func() {
			for more := true; more && !failed.Load(); more = time.Since(began) < span {
				k, err := work(ctx)
				if err != nil {
					failed.Store(true)
					errs[i] = fmt.Errorf("send: %w", err)
					return
				}
				n.Add(int64(k))
			}
		})
	}
	wg.Wait()
	return int(n.Load()), errors.Join(errs...)
}
