// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// plainQueue is not monitored; workQueue is.
const plainQueue = "plain"

// A scene is an embedded broker with sidecars, monitors and HAProxy, each a process of its own.
type scene struct {
	program  *Program
	broker   *child
	others   []*child          // in the order in which they were started
	gone     chan *child       // the first child that has ended
	sidecars map[string]*child // by the kind of their companions
	haproxy  *haproxyProcess   // nil: not started
}

// setScene starts the broker, which creates the monitor queue by itself.
func setScene(ctx context.Context, p *Program) (*scene, error) {
	const queue = "{name: %s, deadLetteringOnMessageExpiration: true}"
	var queues []string
	for _, name := range []string{workQueue, plainQueue} {
		queues = append(queues, fmt.Sprintf(queue, name))
	}
	broker, err := startChild(ctx, p, "broker", settings{
		"BROKER_AUTO_CREATE": "false",
		"BROKER_QUEUES":      "[" + strings.Join(queues, ", ") + "]",
		// as in a Premium namespace, so that batches have the same size
		"BROKER_MAX_MESSAGE_SIZE": "1MiB",
	})
	if err != nil {
		return nil, err
	}
	s := &scene{program: p, broker: broker, gone: make(chan *child, 1),
		sidecars: map[string]*child{}}
	s.mind(broker)
	return s, nil
}

// mind watches for the end of a process.
func (s *scene) mind(c *child) {
	go func() {
		<-c.gone
		select {
		case s.gone <- c:
		default: // another process ended first
		}
	}()
}

// add starts a proxy or a monitor that reaches the broker at that address.
func (s *scene) add(ctx context.Context, command, address, companions string) (*child, error) {
	c, err := startChild(ctx, s.program, command, settings{
		"NAMESPACE":        connectionString(address),
		"MONITOR_ENTITIES": fmt.Sprintf("[{queue: %s}]", workQueue),
		"COMPANIONS":       companions,
	})
	if err != nil {
		return nil, err
	}
	s.others = append(s.others, c)
	s.mind(c)
	return c, nil
}

// sidecar returns the proxy that writes these companions, and starts it at the first call.
func (s *scene) sidecar(ctx context.Context, address, companions string) (*child, error) {
	if c := s.sidecars[companions]; c != nil {
		return c, nil
	}
	c, err := s.add(ctx, "proxy", address, companions)
	if err == nil {
		s.sidecars[companions] = c
	}
	return c, err
}

// stop ends all of them, the broker last.
func (s *scene) stop() error {
	errs := make([]error, len(s.others)+1)
	var wg sync.WaitGroup
	if s.haproxy != nil {
		wg.Go(func() { errs[len(s.others)] = s.haproxy.stop() })
	}
	for i, c := range s.others {
		wg.Go(func() { errs[i] = c.stop() })
	}
	wg.Wait()
	return errors.Join(append(errs, s.broker.stop())...)
}

// complaint returns the logs of all processes as an error.
func (s *scene) complaint() (err error) {
	for _, c := range append([]*child{s.broker}, s.others...) {
		err = errors.Join(err, c.complaint())
	}
	if s.haproxy != nil {
		err = errors.Join(err, s.haproxy.complaint())
	}
	return err
}

// await polls until the condition is true or the timeout has passed, and reports which. It fails
// when a process ends.
func (s *scene) await(ctx context.Context, timeout time.Duration,
	so func() (bool, error)) (bool, error) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for end := time.Now().Add(timeout); ; {
		if done, err := so(); err != nil || done || time.Now().After(end) {
			return done, err
		}
		if err := s.pause(ctx, poll.C); err != nil {
			return false, err
		}
	}
}

// pause waits for a tick, unless ctx or a process ends.
func (s *scene) pause(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-tick:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case c := <-s.gone:
		return errors.Join(fmt.Errorf("the measured %s has ended", c.name), s.complaint())
	}
}

// settled reports whether all messages have outcomes: no companion is left, no message but the live
// ones, and no dead letter without its notification.
func (s *scene) settled(ctx context.Context, monitor *child, live int) (bool, error) {
	queues, err := s.broker.counts(ctx)
	if err != nil {
		return false, err
	}
	work, companions := queues[workQueue], queues[monitorQueue]
	return work.Active+work.Deferred+work.Scheduled <= live &&
			monitor.notifiedCount() >= work.DeadLetter && companions.Active+companions.Scheduled == 0,
		nil
}

// samples returns the sums of the metrics of all processes but the broker.
func (s *scene) samples(ctx context.Context) (map[string]float64, error) {
	sum := map[string]float64{}
	for _, c := range s.others {
		one, err := c.metrics(ctx)
		if err != nil {
			return nil, err
		}
		for name, v := range one {
			sum[name] += v
		}
	}
	return sum, nil
}
