// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// faults are what happens to the line of the monitors, the clock of the broker and the queue while
// a scenario is played.
type faults struct {
	line     []lineFault
	scans    bool          // the monitor scans and never nudges
	step     time.Duration // of the clock of the broker, before the batch stepped
	stepped  int
	changed  int // before this batch the queue gets newLife and newLock; 0: never
	newLife  time.Duration
	newLock  time.Duration
	recreate int // before this batch the queue is deleted and recreated; 0: never
}

// lineFault is what happens to the line of the monitors after a pause.
type lineFault struct {
	pause, last time.Duration
	stall       pipenet.Direction // 0: the line is cut, and cannot be dialled until the fault ends
}

// drawFaults adds faults to the scenario. It has chances of its own, so that it changes nothing
// else.
func (p *plan) drawFaults(rng *rand.Rand) {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	ofQueue := p.kind != "topic" && !p.undescribed
	batch := func() int { return 1 + rng.IntN(len(p.batches)-1) }
	if one(3) {
		for range 1 + rng.IntN(3) {
			p.line = append(p.line, lineFault{
				pause: time.Duration(rng.IntN(5000)) * time.Millisecond, last: time.Duration(20+rng.IntN(3000)) * time.Millisecond,
				stall: pipenet.Direction(rng.IntN(4)),
			})
		}
	}
	p.scans = one(6)
	if ofQueue && !p.drops && one(4) {
		p.changed, p.newLock = batch(), time.Duration(5+rng.IntN(10))*time.Second
		if !one(3) {
			p.newLife = time.Duration(2+rng.IntN(8)) * time.Second
		}
	}
	if ofQueue && one(6) {
		p.recreate = batch()
	} else if one(6) {
		// Stamps of before and after a step back do not say which default a message has.
		p.stepped, p.step = batch(), []time.Duration{-2 * time.Second, -300 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[rng.IntN(4)]
		if p.changed > 0 {
			p.step = p.step.Abs()
		}
	}
}

func (f faults) String() string {
	return fmt.Sprintf("line %v, scans %v, step %v before %d, life %v and lock %v before %d, recreated before %d",
		f.line, f.scans, f.step, f.stepped, f.newLife, f.newLock, f.changed, f.recreate)
}

// outages is how long the line was broken, with the time that it takes to notice that. A monitor
// that stops behind a frozen line gives no companion back: its locks have to lapse.
func (p *plan) outages() (d time.Duration) {
	for _, l := range p.line {
		if d += l.last + 2*time.Second; len(p.changes) > 0 {
			d += time.Minute
		}
	}
	return d
}

// setBackUnseen is by how much a deadline may be early that a monitor dead-letters by itself. Only
// the lock of a message, less the lock duration, shows that the clock of the broker was set back.
func (p *plan) setBackUnseen() time.Duration {
	if !p.undescribed {
		return 0
	}
	return max(-p.step, 0)
}

// between happens before the batch i is sent. It reports whether the queue is another one.
func (p *played) between(i int) (anew bool) {
	p.Helper()
	if i == 0 {
		return false
	}
	if i == p.stepped {
		p.Namespace.Broker.SetClockOffset(p.offset + p.step)
		if p.measured {
			p.MeasureClock()
		}
	}
	if i != p.changed && i != p.recreate {
		return false
	}
	ns := p.Namespace.Broker.Default()
	info, err := ns.QueueInfo(p.to)
	p.Must(err)
	if i == p.changed {
		info.Config.DefaultMessageTimeToLive, info.Config.LockDuration = p.newLife, p.newLock
		p.changedAt = p.Namespace.Broker.Now()
		_, err = ns.UpdateQueue(info.Config)
		p.Must(err)
		p.mu.Lock()
		p.settings.DefaultMessageTimeToLive = p.newLife
		p.mu.Unlock()
	}
	if i != p.recreate {
		return false
	}
	p.Must(ns.DeleteQueue(p.to))
	_, err = ns.CreateQueue(info.Config)
	p.Must(err)
	p.anew = p.Namespace.Broker.Now()
	for _, b := range p.batches[:i] {
		for _, m := range b.messages {
			p.before[m.key] = true
		}
	}
	return true
}

// openLine gives the monitors a line of their own to the broker.
func (s *scene) openLine() {
	s.Helper()
	s.monitorLine = pipenet.New()
	ln, err := s.monitorLine.Listen(brokertest.Host)
	s.Must(err)
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return // the scene has ended
			}
			far, err := s.Namespace.Dial(s.Context())
			if err != nil {
				_ = near.Close()
				continue
			}
			go splice(near, far)
			go splice(far, near)
		}
	}()
	s.Cleanup(func() {
		s.monitorLine.Resume(pipenet.Both)
		s.monitorLine.Cut()
		_ = ln.Close()
	})
}

// splice carries what one end says to the other. When one of them ends, both do.
func splice(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// links leads a monitor to the broker, over its line if it has one.
func (s *scene) links() *link.Namespace {
	if s.monitorLine == nil {
		return s.Namespace.Links(s.T)
	}
	key := brokertest.Key()
	links := link.New(link.Config{
		Host: brokertest.Host, Plain: true, Tokens: link.SAS(key.KeyName, key.PrimaryKey),
		Dial: func(ctx context.Context) (net.Conn, error) { return s.monitorLine.Dial(ctx, brokertest.Host) },
	})
	s.Cleanup(func() { _ = links.Close() }) // its line may have been cut
	return links
}

// breakLine breaks the line of the monitors, again and again.
func (f *faults) breakLine(s *scene) {
	for _, l := range f.line {
		time.Sleep(l.pause)
		if l.stall == 0 {
			s.monitorLine.Refuse(true)
			s.monitorLine.Cut()
		} else {
			s.monitorLine.Stall(l.stall)
		}
		time.Sleep(l.last)
		s.monitorLine.Refuse(false)
		s.monitorLine.Resume(pipenet.Both)
	}
}
