// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/index"
)

// cancelling is a scheduler that cancels, and what came of it.
type cancelling struct {
	*testing.T
	ns       *brokertest.Namespace
	s        *scheduler.Scheduler
	registry *prometheus.Registry

	mu        sync.Mutex
	cancelled int
	errs      []error
}

func setupCancel(t *testing.T, act func(*cancelling)) {
	t.Helper()
	c := &cancelling{registry: prometheus.NewRegistry()}
	setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
		c.T, c.ns = t, ns
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
		t.Cleanup(func() { _ = links.Close() }) // a test may have broken its connection
		s, err := scheduler.New(scheduler.Config{
			MonitorQueue: monitorQueue, Links: links, Operations: operations.New(c.registry),
			Cancelled: func(n int, err error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.cancelled += n
				if err != nil {
					c.errs = append(c.errs, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.s = s
		time.Sleep(time.Millisecond) // a stamp of a whole second is measured once more
		if err := s.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.RunCancel(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("RunCancel = %v, want nil after a stop", err)
			}
			_ = s.Close(context.Background())
		})
		act(c)
	})
}

// send writes the companion of one message to orders, and returns how to settle that.
func (c *cancelling) send(id string, within time.Duration) (settle func()) {
	c.Helper()
	now := time.Now().Truncate(time.Millisecond)
	refs := []scheduler.Reference{{MessageID: id, Sent: now, From: now, Until: now.Add(2 * time.Second), Deadline: now.Add(within), Within: within, Stated: "ttl"}}
	c.s.Expect("orders", refs)
	if err := c.s.Schedule(c.Context(), scheduler.Companion{Entity: "orders", References: refs}); err != nil {
		c.Fatal(err)
	}
	c.s.Confirm("orders", refs)
	return func() {
		c.s.Settle(index.Delivered{Key: index.KeyOf("orders", id, ""), Enqueued: now, Deadline: now.Add(within)})
		if !c.s.Settled("orders", &refs[0]) {
			c.Errorf("Settled = false of %s", id)
		}
	}
}

func (c *cancelling) outcome() (cancelled int, errs []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled, c.errs
}

func (c *cancelling) operations(name string) (n int) {
	c.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		c.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == name {
			n += int(m.GetCounter().GetValue())
		}
	}
	return n
}

// want wants so many companions to be left and so many to have been cancelled.
func (c *cancelling) want(left, cancelled int) {
	c.Helper()
	if got := len(companions(c.T, c.ns)); got != left {
		c.Errorf("%d companions are left, want %d", got, left)
	}
	if got, errs := c.outcome(); got != cancelled {
		c.Errorf("%d cancelled companions were reported (%v), want %d", got, errs, cancelled)
	}
}

func TestNeedlessCompanionsShareRequests(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		const n = 1000
		var settle []func()
		for i := range n {
			settle = append(settle, c.send(fmt.Sprint("m-", i), time.Hour+time.Duration(i)*time.Second))
		}
		for _, f := range settle[:n-1] {
			f()
		}
		time.Sleep(10 * time.Second)
		c.want(1, n-1)
		if cancels, peeks := c.operations("cancel"), c.operations("peek"); cancels > 5 || peeks > 5 {
			c.Errorf("%d requests and %d peeks, want 5 at most", cancels, peeks)
		}
	})
}

func TestNeedlessCompanionThatIsDueSoonIsLeftAlone(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		soon, later := c.send("soon", 2500*time.Millisecond), c.send("later", 6*time.Second)
		soon()
		later()
		time.Sleep(5 * time.Second)
		c.want(1, 1)
	})
}

// The monitor queue is that of many sidecars: what is theirs is read on the way, and no more of it
// than pays.
func TestCompanionsOfOthersAreLeftAlone(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		other := func(n int) {
			s, err := scheduler.New(scheduler.Config{Links: c.ns.Links(c.T), MonitorQueue: monitorQueue})
			if err != nil {
				c.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			for i := range n {
				if err := s.Schedule(c.Context(), one(fmt.Sprint("m-", i), time.Now().Add(time.Hour+time.Duration(i)*time.Second))); err != nil {
					c.Fatal(err)
				}
			}
		}
		other(600)
		settle := c.send("m-0", time.Hour)
		settle()
		time.Sleep(time.Minute) // one peek a round is what one companion is worth
		c.want(600, 1)
		if peeks := c.operations("peek"); peeks > 3 {
			c.Errorf("%d peeks to read 601 companions, want 3", peeks)
		}
	})
}

func TestCancelThatFails(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		remove := c.ns.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Request: "com.microsoft:cancel-scheduled-message",
			Error: amqp.Errorf("com.microsoft:message-not-found", "One of them is gone."),
		})
		c.send("unlucky", time.Hour)()
		time.Sleep(time.Minute)
		c.want(1, 0)
		if _, errs := c.outcome(); len(errs) != 1 {
			c.Errorf("reported %v, want one failure: a companion that cannot be cancelled becomes due", errs)
		}
		remove()
		c.send("lucky", time.Hour)()
		time.Sleep(time.Minute)
		c.want(1, 1)
	})
}

func TestACancelThatIsNotAnsweredIsAskedForAgain(t *testing.T) {
	for name, fault := range map[string]broker.Fault{"cut": {Cut: true}, "busy": {Error: broker.ServerBusy()}} {
		t.Run(name, func(t *testing.T) {
			setupCancel(t, func(c *cancelling) {
				fault.Operation, fault.Request, fault.Times = broker.OnManagement, "com.microsoft:cancel-scheduled-message", 2
				defer c.ns.Broker.Default().Inject(fault)()
				c.send("m", time.Hour)()
				time.Sleep(time.Minute)
				c.want(0, 1)
			})
		})
	}
}

// A second request to cancel companions, while the first one is under way, is refused with these
// words. They are gone. A clock is measured with such a cancel, too.
func TestCompanionsThatAreBeingCancelledAreGone(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		defer c.ns.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Request: "com.microsoft:cancel-scheduled-message",
			Error: amqp.Errorf("com.microsoft:argument-error", "The scheduled message with SequenceNumber = 2 is already being cancelled."),
		})()
		for _, id := range []string{"m-1", "m-2", "m-3"} {
			c.send(id, time.Hour)()
		}
		time.Sleep(time.Minute)
		c.want(3, 3) // this broker keeps them all the same
		if n := c.operations("cancel"); n != 1 {
			c.Errorf("%d requests to cancel them, want 1", n)
		}
		if _, errs := c.outcome(); len(errs) != 0 {
			c.Errorf("reported %v, want no failure", errs)
		}
		if err := c.s.MeasureClock(c.Context()); err != nil {
			c.Errorf("MeasureClock = %v while its probes are being cancelled", err)
		}
	})
}

// A peek may show a companion for a while after it was cancelled. Nobody cancels it again, and no
// other companion stays for it.
func TestACancelledCompanionThatAPeekStillShows(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		c.send("m-1", time.Hour)()
		shown := companions(c.T, c.ns)
		time.Sleep(time.Minute)
		c.want(0, 1)
		sender, err := c.ns.Client(c.T).NewSender(monitorQueue, nil)
		if err != nil {
			c.Fatal(err)
		}
		again := []*azservicebus.Message{{MessageID: &shown[0].MessageID, Body: []byte("a companion")}}
		if _, err := sender.ScheduleMessages(c.Context(), again, shown[0].ScheduledEnqueueTime, nil); err != nil {
			c.Fatal(err)
		}
		c.send("m-2", time.Hour)()
		time.Sleep(time.Minute)
		c.want(1, 2)
		if _, errs := c.outcome(); len(errs) != 0 {
			c.Errorf("reported %v, want no failure", errs)
		}
	})
}

func TestMonitorQueueThatCannotBePeekedAt(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		remove := c.ns.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Error: amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "No."),
		})
		settle := c.send("m", 3*time.Hour)
		settle()
		time.Sleep(time.Hour)
		c.want(1, 0)
		if n := c.operations("peek"); n == 0 || n > 20 {
			c.Errorf("%d peeks in an hour of refusals, want a few", n)
		}
		remove()
		time.Sleep(15 * time.Minute)
		c.want(0, 1)
	})
}

// A broker whose peeks do not show what is scheduled, as that of a partitioned queue may not.
func TestMonitorQueueThatShowsNoCompanions(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		c.send("m", 3*time.Hour)()
		if err := purge(c); err != nil {
			c.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if n := c.operations("peek"); n == 0 || n > 30 {
			c.Errorf("%d peeks in two hours, want a few", n)
		}
	})
}

// The numbers of a queue begin again when it is made again.
func TestCancellingGoesOnWhenTheMonitorQueueWasMadeAgain(t *testing.T) {
	setupCancel(t, func(c *cancelling) {
		for i := range 100 {
			c.send(fmt.Sprint("before-", i), time.Hour)()
		}
		time.Sleep(10 * time.Second)
		c.want(0, 100)
		remake(c.T, c.ns, monitorQueue)
		c.send("m", 3*time.Hour)()
		time.Sleep(time.Minute)
		c.want(0, 101)
	})
}

// remake deletes a queue and makes it again.
func remake(t *testing.T, ns *brokertest.Namespace, name string) {
	t.Helper()
	namespace := ns.Broker.Default()
	info, err := namespace.QueueInfo(name)
	if err == nil {
		err = namespace.DeleteQueue(name)
	}
	if err == nil {
		_, err = namespace.CreateQueue(info.Config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// purge takes the companions off the monitor queue.
func purge(c *cancelling) error {
	sender, err := c.ns.Client(c.T).NewSender(monitorQueue, nil)
	if err != nil {
		return err
	}
	var numbers []int64
	for _, v := range companions(c.T, c.ns) {
		numbers = append(numbers, v.SequenceNumber)
	}
	return sender.CancelScheduledMessages(c.Context(), numbers, nil)
}
