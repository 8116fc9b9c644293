// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker/queue"
)

// However long it takes to deliver, or wherever the clock jumps meanwhile.
func TestAMoverDeliversOnceWhateverTheClockDoes(t *testing.T) {
	for name, fails := range map[string]bool{"all arrive": false, "one does not": true} {
		t.Run(name, func(t *testing.T) {
			b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "q", LockDuration: time.Second, MaxDeliveryCount: 1}}})
			e := b.Default().entities.find("q")
			if _, err := e.queue.Send(messageOf("a", 0, ""), messageOf("b", 1, ""), messageOf("c", 2, "")); err != nil {
				t.Fatal(err)
			}
			delivered := map[string]int{}
			m := newMover(e.queue, DiskGate{}, func(d *queue.Delivery) (reason, description string) {
				delivered[d.MessageID]++
				b.SetClockOffset(time.Until(b.Now()) + time.Hour)
				if fails && d.MessageID == "b" {
					return reasonNotForwarded, "not this one"
				}
				return "", ""
			})
			defer m.consumer.Close()
			m.now(true)
			for _, id := range []string{"a", "b", "c"} {
				if delivered[id] != 1 {
					t.Errorf("%s was delivered %d times, want once", id, delivered[id])
				}
			}
			wantDead := 0
			if fails {
				wantDead = 1
			}
			if c := e.queue.Counts(); c.Active != 0 || c.DeadLetter != wantDead {
				t.Errorf("left behind: %d active, %d dead; want 0, %d", c.Active, c.DeadLetter, wantDead)
			}
		})
	}
}

func TestAnEntityWithSessionsCannotForward(t *testing.T) {
	n := newTestBroker(t, Config{
		Queues: []QueueConfig{{Name: "to"}, {Name: "sessions", RequiresSession: true}},
		Topics: []TopicSetup{{TopicConfig: TopicConfig{Name: "t"}}},
	}).Default()
	for name, change := range map[string]func() error{
		"a new queue": func() error {
			_, err := n.CreateQueue(QueueConfig{Name: "q", RequiresSession: true, ForwardTo: "to"})
			return err
		},
		"an update": func() error {
			_, err := n.UpdateQueue(QueueConfig{Name: "sessions", RequiresSession: true, ForwardTo: "to"})
			return err
		},
		"a subscription": func() error {
			_, err := n.CreateSubscription("t", SubscriptionConfig{Name: "s", RequiresSession: true, ForwardTo: "to"})
			return err
		},
	} {
		if err := change(); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s = %v, want ErrInvalidConfig", name, err)
		}
	}
	if _, err := n.CreateQueue(QueueConfig{Name: "q", RequiresSession: true, ForwardDeadLetteredMessagesTo: "to"}); err != nil {
		t.Errorf("sessions and a forward of dead letters: %v, want none", err)
	}
}

// forwarded sends a message to q and returns where it lies then, and why.
func forwarded(t *testing.T, n *Namespace, q string) (at, reason string) {
	t.Helper()
	if err := n.entities.find(q).send(false, messageOf("a", 0, "")); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	for path, e := range n.entities.byKey {
		for suffix, from := range map[string]*queue.Queue{"": e.queue, "/dead": e.queue.DeadLetterQueue()} {
			for _, v := range seen(from.Peek(nil, 0, 10)) {
				at, reason = at+path+suffix, v.DeadLetterReason
			}
			c := from.NewConsumer(queue.ReceiveAndDelete)
			c.AddCredit(10)
			c.Take(nil)
			c.Close()
		}
	}
	return at, reason
}

func TestAForwardIsBoundToWhatItsTargetWas(t *testing.T) {
	for name, cfg := range map[string]Config{
		"the target is older": {Queues: []QueueConfig{{Name: "to"}, {Name: "q", ForwardTo: "to"}}},
		"it is named later":   {Queues: []QueueConfig{{Name: "q", ForwardTo: "to"}, {Name: "to"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestBroker(t, cfg).Default()
				want := func(when, wantAt, wantReason string) {
					t.Helper()
					if at, reason := forwarded(t, n, "q"); at != wantAt || reason != wantReason {
						t.Errorf("%s: the message lies in %q (%q), want %q (%q)", when, at, reason, wantAt, wantReason)
					}
				}
				if err := n.DeleteQueue("to"); err != nil {
					t.Fatal(err)
				}
				want("without a target", "q/dead", reasonNoTarget)
				if _, err := n.CreateQueue(QueueConfig{Name: "to"}); err != nil {
					t.Fatal(err)
				}
				want("another of its name", "q/dead", reasonNoTarget)
				if _, err := n.UpdateQueue(QueueConfig{Name: "q", ForwardTo: "to", MaxDeliveryCount: 5}); err != nil {
					t.Fatal(err)
				}
				want("after an update", "to", "")
			})
		})
	}
}

// A message that cannot be forwarded is a dead letter, for any cause, and goes where dead letters
// go.
func TestWhatCannotBeForwardedIsADeadLetter(t *testing.T) {
	for name, scene := range map[string]struct {
		queues []QueueConfig
		at     string
		reason string
	}{
		"a target with sessions": {
			[]QueueConfig{{Name: "s", RequiresSession: true}, {Name: "q", ForwardTo: "s"}},
			"q/dead", queue.ReasonNoSession,
		},
		"a disabled target": {[]QueueConfig{{Name: "off", Status: Disabled}, {Name: "q", ForwardTo: "off"}}, "q/dead", reasonNotForwarded},
		"a full target":     {[]QueueConfig{{Name: "full", MaxSize: 1}, {Name: "q", ForwardTo: "full"}}, "q/dead", reasonNotForwarded},
		"a central queue": {
			[]QueueConfig{{Name: "central"}, {Name: "off", Status: SendDisabled}, {Name: "q", ForwardTo: "off", ForwardDeadLetteredMessagesTo: "central"}},
			"central", reasonNotForwarded,
		},
		"a central queue that is closed": {
			[]QueueConfig{{Name: "off", Status: SendDisabled}, {Name: "q", ForwardTo: "off", ForwardDeadLetteredMessagesTo: "off"}},
			"q/dead", reasonNotForwarded,
		},
		"a central queue that forwards in vain": {
			[]QueueConfig{
				{Name: "central"}, {Name: "off", Status: SendDisabled},
				{Name: "second", ForwardTo: "off", ForwardDeadLetteredMessagesTo: "central"},
				{Name: "q", ForwardTo: "off", ForwardDeadLetteredMessagesTo: "second"},
			},
			"central", reasonNotForwarded,
		},
		"a chain that is too long, with a central queue": {
			[]QueueConfig{
				{Name: "central"}, {Name: "end"}, {Name: "q4", ForwardTo: "end", ForwardDeadLetteredMessagesTo: "central"},
				{Name: "q3", ForwardTo: "q4"}, {Name: "q2", ForwardTo: "q3"}, {Name: "q1", ForwardTo: "q2"}, {Name: "q", ForwardTo: "q1"},
			},
			"central", reasonMaxHops,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestBroker(t, Config{Queues: scene.queues}).Default()
				if at, reason := forwarded(t, n, "q"); at != scene.at || reason != scene.reason {
					t.Errorf("the message lies in %q (%q), want %q (%q)", at, reason, scene.at, scene.reason)
				}
			})
		})
	}
}

// The dead letter waits for a target that is closed for a while.
func TestADeadLetterIsForwardedOnceItsTargetTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestBroker(t, Config{Queues: []QueueConfig{
			{Name: "central", Status: SendDisabled}, {Name: "q", ForwardTo: "central", ForwardDeadLetteredMessagesTo: "central"},
		}}).Default()
		if err := n.entities.find("q").send(false, messageOf("a", 0, "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := n.entities.find("q").queue.Counts().DeadLetter; got != 1 {
			t.Errorf("%d dead letters wait for their target, want 1", got)
		}
		if _, err := n.UpdateQueue(QueueConfig{Name: "central"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(queue.DefaultLockDuration)
		synctest.Wait()
		if left, there := n.entities.find("q").queue.Counts().DeadLetter, n.entities.find("central").queue.Counts().Active; left != 0 || there != 1 {
			t.Errorf("%d dead letters wait, and %d were forwarded; want 0 and 1", left, there)
		}
	})
}

// Python's test_mgmt_queue_update_success has an update accepted that makes a queue forward to
// itself.
func TestAQueueThatForwardsToItselfEndsAtTheHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "q"}}})
		for _, field := range []QueueConfig{{Name: "new", ForwardTo: "NEW"}, {Name: "new", ForwardDeadLetteredMessagesTo: "sb://h/new"}} {
			if _, err := b.Default().CreateQueue(field); !errors.Is(err, ErrInvalidConfig) {
				t.Errorf("CreateQueue(%+v) = %v, want ErrInvalidConfig", field, err)
			}
		}
		if _, err := b.Default().UpdateQueue(QueueConfig{Name: "q", ForwardTo: "sb://h/Q", ForwardDeadLetteredMessagesTo: "q"}); err != nil {
			t.Fatal(err)
		}
		q := b.Default().entities.find("q")
		if err := q.send(false, messageOf("a", 0, "")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dead := seen(q.queue.DeadLetterQueue().Peek(nil, 0, 10))
		if c := q.queue.Counts(); c.Active != 0 || len(dead) != 1 || dead[0].DeadLetterReason != reasonMaxHops || dead[0].Hops != 2*maxHops {
			t.Errorf("counts %+v, dead letters %+v; want one that was forwarded %d times", c, dead, 2*maxHops)
		}
	})
}

func TestWhatForwardsIsNeverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestBroker(t, Config{
			Queues: []QueueConfig{
				{Name: "to"}, {Name: "idle", AutoDeleteOnIdle: time.Hour, ForwardDeadLetteredMessagesTo: "to"},
				{Name: "q", AutoDeleteOnIdle: time.Hour, ForwardTo: "to"},
			},
			Topics: []TopicSetup{{TopicConfig: TopicConfig{Name: "t", AutoDeleteOnIdle: time.Hour}, Subscriptions: []SubscriptionSetup{
				{SubscriptionConfig: SubscriptionConfig{Name: "idle", AutoDeleteOnIdle: time.Hour}},
				{SubscriptionConfig: SubscriptionConfig{Name: "s", AutoDeleteOnIdle: time.Hour, ForwardTo: "to"}},
			}}},
		}).Default()
		want := func(when string, paths ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, e := range n.entities.byKey {
				got = append(got, e.path)
			}
			slices.Sort(got)
			if diff := cmp.Diff(paths, got); diff != "" {
				t.Errorf("%s there are (-want +got):\n%s", when, diff)
			}
		}
		time.Sleep(24 * time.Hour)
		want("after a day", "q", "t", "t/Subscriptions/s", "to")
		if _, err := n.UpdateQueue(QueueConfig{Name: "q", AutoDeleteOnIdle: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := n.DeleteSubscription("t", "s"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		want("once nothing forwards", "to")
	})
}
