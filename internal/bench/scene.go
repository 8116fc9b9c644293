// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	pollInterval = 200 * time.Millisecond
	// completionTimeout is how long after its deadline a message counts as lost. It is longer
	// than a lock, which a consumer may leave behind.
	completionTimeout = 90 * time.Second
	// quietPeriod is how long a measurement usually waits at its end for second notifications.
	quietPeriod = time.Second
	// lockDuration is the lock duration of the measured queues.
	lockDuration = time.Minute
)

// plainQueue is not monitored; workQueue is.
const plainQueue = "plain"

// A scene is an embedded broker with sidecars, monitors and HAProxy, each a process of its own; or
// all of Overdue in one process.
type scene struct {
	program  *Program
	broker   *child
	upstream string            // the address at which the others reach the broker
	others   []*child          // in the order in which they were started
	gone     chan *process     // the first that has ended
	sidecars map[string]*child // by the kind of their companions
	haproxy  *haproxyProcess   // nil: not started
}

// startBroker starts a broker alone, in memory. It creates the monitor queue by itself.
func startBroker(ctx context.Context, p *Program) (*scene, error) {
	return startBrokerOn(ctx, p, "")
}

// startBrokerOn is startBroker on a directory. "": there is none.
func startBrokerOn(ctx context.Context, p *Program, directory string) (*scene, error) {
	given := settings{
		"BROKER_QUEUES": queueSettings([]string{workQueue, plainQueue}),
		// as in a Premium namespace, so that batches have the same size
		"BROKER_MAX_MESSAGE_SIZE": "1MiB",
	}
	if directory != "" {
		given["BROKER_DIRECTORY"] = directory
	}
	return newScene(ctx, p, "broker", given)
}

// startAll starts all of Overdue in one process. It monitors these queues.
func startAll(ctx context.Context, p *Program, queues []string, companions string) (*scene, error) {
	return newScene(ctx, p, "run", settings{
		"BROKER_QUEUES":    queueSettings(queues),
		"MONITOR_ENTITIES": listOf(queues, "{queue: %s}"),
		"COMPANIONS":       companions,
	})
}

// queueSettings returns the setting of the broker's queues.
func queueSettings(names []string) string {
	return listOf(names, fmt.Sprintf("{name: %%s, deadLetteringOnMessageExpiration: true, lockDuration: %s}",
		lockDuration))
}

// listOf returns a setting with an element of this form for each name.
func listOf(names []string, form string) string {
	elements := make([]string, len(names))
	for i, name := range names {
		elements[i] = fmt.Sprintf(form, name)
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

// newScene starts the command that has the broker.
func newScene(ctx context.Context, p *Program, command string, given settings) (*scene, error) {
	given["BROKER_AUTO_CREATE"] = "false"
	broker, err := startChild(ctx, p, command, given)
	if err != nil {
		return nil, err
	}
	s := &scene{
		program:  p,
		broker:   broker,
		upstream: broker.broker,
		gone:     make(chan *process, 1),
		sidecars: map[string]*child{},
	}
	s.watch(&broker.process)
	return s, nil
}

// watch waits for the end of a process.
func (s *scene) watch(p *process) {
	go func() {
		<-p.gone
		select {
		case s.gone <- p:
		default: // another process ended first
		}
	}()
}

// add starts a proxy or a monitor.
func (s *scene) add(ctx context.Context, command, companions string) (*child, error) {
	c, err := startChild(ctx, s.program, command, settings{
		"NAMESPACE":        connectionString(s.upstream),
		"MONITOR_ENTITIES": listOf([]string{workQueue}, "{queue: %s}"),
		"COMPANIONS":       companions,
	})
	if err != nil {
		return nil, err
	}
	s.others = append(s.others, c)
	s.watch(&c.process)
	return c, nil
}

// addBoth starts a monitor and a proxy.
func (s *scene) addBoth(ctx context.Context, companions string) (monitor, proxy *child, err error) {
	if monitor, err = s.add(ctx, "monitor", companions); err != nil {
		return nil, nil, err
	}
	proxy, err = s.add(ctx, "proxy", companions)
	return monitor, proxy, err
}

// open starts the process on a way, unless it runs already. It returns the address for clients, and
// the id of the process between them and the broker, 0 if there is none.
func (s *scene) open(ctx context.Context, w way) (address string, between int, err error) {
	switch {
	case w.name == wayHAProxy.name:
		if s.haproxy, err = startHAProxy(s.upstream); err != nil {
			return "", 0, err
		}
		return s.haproxy.address, s.haproxy.pid, nil
	case w.companions == "":
		return s.upstream, 0, nil
	}
	c := s.sidecars[w.companions]
	if c == nil {
		if c, err = s.add(ctx, "proxy", w.companions); err != nil {
			return "", 0, err
		}
		s.sidecars[w.companions] = c
	}
	return c.amqp, c.cmd.Process.Pid, nil
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

// await polls until the condition is true or the timeout has passed. It fails when a process ends.
func (s *scene) await(ctx context.Context, timeout time.Duration, so func() (bool, error)) error {
	for end := time.Now().Add(timeout); ; {
		if done, err := so(); err != nil || done || time.Now().After(end) {
			return err
		}
		if err := s.pause(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// awaitDoubles waits for second notifications, for the usual time if none is given.
func (s *scene) awaitDoubles(ctx context.Context, quiet time.Duration) error {
	return s.pause(ctx, cmp.Or(quiet, quietPeriod))
}

// pause waits, unless ctx or a process ends.
func (s *scene) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case p := <-s.gone:
		return errors.Join(fmt.Errorf("the measured %s has ended", p.name), s.complaint())
	}
}

// settled reports whether all messages have outcomes: no companion is left, no message but the live
// ones, and no dead letter without its notification.
func (s *scene) settled(ctx context.Context, monitor *child, live int) (bool, error) {
	queues, err := s.broker.counts(ctx)
	if err != nil {
		return false, err
	}
	waiting, dead := 0, 0
	for path, q := range queues {
		if path != monitorQueue {
			waiting += q.Active + q.Deferred + q.Scheduled
			dead += q.DeadLetter
		}
	}
	companions := queues[monitorQueue]
	return waiting <= live && companions.Active+companions.Scheduled == 0 &&
		monitor.notifiedCount() >= dead, nil
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
