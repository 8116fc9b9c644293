// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// benchPlainQueue is not monitored; benchQueue is.
const benchPlainQueue = "plain"

// A benchScene is an embedded broker and what stands beside it, each a process of its own.
type benchScene struct {
	broker   *benchChild
	others   []*benchChild          // in the order in which they were started
	gone     chan *benchChild       // the first that has ended
	sidecars map[string]*benchChild // by the companions that they write
}

// setBenchScene starts the broker, which makes the monitor queue by itself. What else there is to be is added.
func setBenchScene(ctx context.Context) (*benchScene, error) {
	const queue = "{name: %s, deadLetteringOnMessageExpiration: true}"
	var queues []string
	for _, name := range []string{benchQueue, benchPlainQueue} {
		queues = append(queues, fmt.Sprintf(queue, name))
	}
	broker, err := startBenchChild(ctx, roleBroker, map[string]string{
		"broker.autoCreate": "false", "monitorQueue": benchMonitorQueue, "broker.queues": "[" + strings.Join(queues, ", ") + "]",
		"broker.maxMessageSize": "1MiB", // as of a Premium namespace, so that batches are as large as there
		"log.level":             "warn", "log.format": "json",
	})
	if err != nil {
		return nil, err
	}
	s := &benchScene{broker: broker, gone: make(chan *benchChild, 1), sidecars: map[string]*benchChild{}}
	s.mind(broker)
	return s, nil
}

// mind notices when a process ends.
func (s *benchScene) mind(c *benchChild) {
	go func() {
		<-c.gone
		select {
		case s.gone <- c:
		default: // another one was first
		}
	}()
}

// add starts a proxy or a monitor, which reaches the broker at that address.
func (s *benchScene) add(ctx context.Context, r role, address, companions string) (*benchChild, error) {
	c, err := startBenchChild(ctx, r, map[string]string{
		"namespace":        connectionString(address, anyKeyName, anyKey),
		"monitor.entities": fmt.Sprintf("[{queue: %s}]", benchQueue),
		"monitorQueue":     benchMonitorQueue, "companions": companions,
		"log.level": "warn", "log.format": "json",
	})
	if err != nil {
		return nil, err
	}
	s.others = append(s.others, c)
	s.mind(c)
	return c, nil
}

// sidecar is the proxy that writes these companions, which is started when it is asked for first.
func (s *benchScene) sidecar(ctx context.Context, address, companions string) (*benchChild, error) {
	if c := s.sidecars[companions]; c != nil {
		return c, nil
	}
	c, err := s.add(ctx, roleProxy, address, companions)
	if err == nil {
		s.sidecars[companions] = c
	}
	return c, err
}

// stop ends all of them, the broker last.
func (s *benchScene) stop() error {
	errs := make([]error, len(s.others))
	var wg sync.WaitGroup
	for i, c := range s.others {
		wg.Go(func() { errs[i] = c.stop() })
	}
	wg.Wait()
	return errors.Join(append(errs, s.broker.stop())...)
}

// complaint is what they have logged.
func (s *benchScene) complaint() (err error) {
	for _, c := range append([]*benchChild{s.broker}, s.others...) {
		err = errors.Join(err, c.complaint())
	}
	return err
}

// await asks again and again until it is so, or the patience is over: then it says so. It fails when a process has ended.
func (s *benchScene) await(ctx context.Context, patience time.Duration, so func() (bool, error)) (bool, error) {
	poll := time.NewTicker(benchPoll)
	defer poll.Stop()
	for end := time.Now().Add(patience); ; {
		if done, err := so(); err != nil || done || time.Now().After(end) {
			return done, err
		}
		if err := s.pause(ctx, poll.C); err != nil {
			return false, err
		}
	}
}

// pause waits for a tick, unless ctx ends or a process does.
func (s *benchScene) pause(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-tick:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case c := <-s.gone:
		return errors.Join(fmt.Errorf("the measured overdue %s has ended", c.name), s.complaint())
	}
}

// settled reports whether nothing is left to wait for: no companion, no message beside those that live, and nobody to be
// told of a dead letter.
func (s *benchScene) settled(ctx context.Context, monitor *benchChild, live int) (bool, error) {
	queues, err := s.broker.counts(ctx)
	if err != nil {
		return false, err
	}
	work, companions := queues[benchQueue], queues[benchMonitorQueue]
	return work.Active+work.Deferred+work.Scheduled <= live && len(monitor.toldOf()) >= work.DeadLetter && companions.Active+companions.Scheduled == 0, nil
}

// samples are the metrics of all but the broker, added up.
func (s *benchScene) samples(ctx context.Context) (map[string]float64, error) {
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

// processCPU is the processor time that a process has used, in seconds; 0 where the system does not tell. It costs the process
// nothing, as asking for its metrics does.
func processCPU(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	ticks := 0.0
	if fields := strings.Fields(rest); len(fields) > 12 {
		for _, f := range fields[11:13] { // in user mode, in system mode
			n, _ := strconv.ParseFloat(f, 64) // the kernel writes numbers
			ticks += n
		}
	}
	const perSecond = 100 // USER_HZ, on every architecture that Go runs on
	return ticks / perSecond
}
