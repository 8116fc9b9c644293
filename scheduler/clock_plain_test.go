// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// idle is a store that nobody asks.
type idle struct{ *testing.T }

func (i idle) Put(context.Context, []redisstore.Item) error {
	i.Error("Put was called")
	return nil
}

func (i idle) Withdraw(context.Context, []string) ([]string, error) {
	i.Error("Withdraw was called")
	return nil, nil
}

// Where a store keeps companions, the broker's clock is measured without scheduled messages, and
// others' probes stay theirs until they are old.
func TestBrokersClockIsMeasuredWithoutScheduledMessages(t *testing.T) {
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
				links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
				defer func() { _ = links.Close() }() // it does not matter here
				s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Store: idle{t}, Links: links})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close(context.Background()) }() // nor this
				other, err := ns.Client(t).NewSender(monitorQueue, nil)
				if err != nil {
					t.Fatal(err)
				}
				ttl := time.Minute // that of a probe
				leave := func(id string) {
					t.Helper()
					if err := other.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id, TimeToLive: &ttl}, nil); err != nil {
						t.Fatal(err)
					}
				}
				leave("overdue-clock-old")
				time.Sleep(61 * time.Second)
				leave("overdue-clock-new")
				leave("no probe")
				ns.Net.Delay(pipenet.Both, 7*time.Millisecond)
				if err := s.MeasureClock(t.Context()); err != nil {
					t.Fatal(err)
				}
				select {
				case <-s.Measured():
				default:
					t.Error("the measured clock is not reported")
				}
				ns.Net.Delay(pipenet.Both, 0)
				got := s.Now()
				if off := got.Time.Sub(ns.Broker.Now()).Abs(); !got.Measured || off > got.Uncertainty || got.Uncertainty > 20*time.Millisecond {
					t.Errorf("off by %v with an uncertainty of %v, want within it, and at most 20ms at a round trip of 14ms", off, got.Uncertainty)
				}
				left := companions(t, ns)
				if len(left) != 2 || left[0].MessageID != "overdue-clock-new" || left[1].MessageID != "no probe" {
					t.Errorf("the monitor queue holds %+v, want the new probe of another and what is no probe", left)
				}
			}, func(c *broker.Config, _ *scheduler.Config) { c.ClockOffset = offset })
		})
	}
}

// A failed measurement of the clock is reported, and the local clock stays in use.
func TestClosedLinksMeasureNoClock(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
		links := ns.Links(t)
		s, err := scheduler.New(scheduler.Config{Links: links, MonitorQueue: monitorQueue})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }() // its connection is closed
		if err := links.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.MeasureClock(t.Context()); err == nil || s.Now().Measured {
			t.Errorf("MeasureClock = %v, measured %v, want an error", err, s.Now().Measured)
		}
	})
}

func TestMeasuringTheClockIsCounted(t *testing.T) {
	setupCancel(t, func(c *cancelling) { // which measures it
		if n := c.operations("probe"); n != 6 {
			c.Errorf("%d operations are counted for the first measurement, want 6: two probes are scheduled, peeked at and cancelled", n)
		}
		time.Sleep(time.Millisecond) // a stamp of a whole second is measured once more
		if err := c.s.MeasureClock(c.Context()); err != nil {
			c.Fatal(err)
		}
		if n := c.operations("probe"); n != 9 {
			c.Errorf("%d operations are counted for two measurements, want 3 more for the second", n)
		}
	})
}

// The numbers of a queue begin again when it is made again.
func TestTheClockIsMeasuredWhenTheMonitorQueueWasMadeAgain(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
		s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Store: idle{t}, Links: ns.Links(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }() // it does not matter here
		for range 100 {
			if err := s.MeasureClock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		remake(t, ns, monitorQueue)
		if err := s.MeasureClock(t.Context()); err != nil {
			t.Errorf("measured over the link of the former queue: %v", err)
		}
	})
}
