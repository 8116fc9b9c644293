// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"sync/atomic"
	"time"
)

// disturb changes things until the clients are done.
func (a *actor) disturb(over *atomic.Bool) {
	for i := 0; !over.Load(); i++ {
		a.pause(4 * time.Second)
		a.add(&a.disturbed)
		lock := time.Duration(1+a.r.IntN(10)) * time.Second
		core := setting()
		var err error
		switch a.r.IntN(9) {
		case 0: // a forward comes and goes
			q := core.Queues[1]
			q.ForwardTo = a.one("", "t")
			_, err = a.n.UpdateQueue(q)
		case 1:
			s := core.Topics[0].Subscriptions[1].SubscriptionConfig
			s.ForwardTo, s.LockDuration = a.one("", "out"), lock
			_, err = a.n.UpdateSubscription("t", s)
		case 2:
			q := core.Queues[a.r.IntN(len(core.Queues))]
			q.LockDuration, q.Status = lock, a.status()
			_, err = a.n.UpdateQueue(q)
		case 3:
			c := core.Topics[0].TopicConfig
			c.Status, c.UserMetadata = a.status(), fmt.Sprint(i)
			_, err = a.n.UpdateTopic(c)
		case 4:
			s := core.Topics[0].Subscriptions[a.r.IntN(5)].SubscriptionConfig
			s.LockDuration = lock
			_, err = a.n.UpdateSubscription("t", s)
		case 5:
			err = a.n.Detach(a.one("in", "mid", "t", "work", "sess", "t/subscriptions/s3", "out"))
		case 6:
			a.fail()
		default:
			a.comeAndGo(i)
		}
		if err != nil {
			a.t.Errorf("disturbance %d = %v, want nil", i, err)
		}
	}
}

// fail injects a fault that hits once.
func (a *actor) fail() {
	operations := []Operation{OnAttach, OnSend, OnReceive, OnSettle}
	f := Fault{Operation: operations[a.r.IntN(len(operations))], Times: 1 + a.r.IntN(3), After: a.r.IntN(5)}
	f.Entity = a.one("", "in", "work", "sess", "out", "t/Subscriptions/s3")
	if a.r.IntN(3) == 0 {
		f.Delay = time.Duration(1+a.r.IntN(8000)) * time.Millisecond
	}
	switch a.r.IntN(5) {
	case 0:
		f.Error = ServerBusy()
	case 1:
		f.Detach = true
	case 2:
		f.Cut = true
	case 3:
		f.Silent = true
	}
	a.n.Inject(f)
}

// comeAndGo makes and deletes entities that nothing is expected of. Errors: the
// other one who does it was faster.
func (a *actor) comeAndGo(i int) {
	switch a.r.IntN(6) {
	case 0:
		_, _ = a.n.CreateQueue(QueueConfig{Name: "tmp", ForwardTo: a.one("", "tmp2", "tmp")})
		_, _ = a.n.CreateQueue(QueueConfig{Name: "tmp2", ForwardTo: "tmp"})
	case 1:
		_, _ = a.n.CreateSubscription("t", SubscriptionConfig{Name: "tmp", ForwardTo: a.one("", "tmp")})
	case 2:
		_, _ = a.n.CreateRule("t", "tmp", RuleConfig{Name: fmt.Sprint(i), Filter: Filter{SQL: &SQLFilter{Expression: "n > 3"}}, Action: Action{SQL: "SET x = n"}})
	case 3:
		_ = a.n.DeleteSubscription("t", "tmp")
	case 4:
		_ = a.n.DeleteQueue(a.one("tmp", "tmp2"))
	default:
		if e := a.n.entities.find("tmp"); e != nil {
			_ = e.Send(textMessage(fmt.Sprint("tmp", i), i))
		}
	}
}

// resetOther sends through another namespace while it is reset. Nothing from
// before a reset may be there after it.
func (a *actor) resetOther(over *atomic.Bool) {
	n := a.b.Namespace("other")
	for !over.Load() {
		a.pause(100 * time.Millisecond)
		if a.r.IntN(10) > 0 {
			e, err := n.Entity("in")
			if err != nil {
				a.t.Errorf("the other namespace has no queue: %v", err)
				return
			}
			// If a reset comes behind this line, e is not the entity that it makes.
			_ = e.Send(textMessage(fmt.Sprint(a.resets.n.Load()), 1)) // an error: e has been deleted
			continue
		}
		a.resets.Lock()
		now := a.resets.n.Add(1)
		if err := n.Reset(); err != nil {
			a.t.Errorf("Reset = %v, want nil", err)
		}
		for _, path := range []string{"t/Subscriptions/s1", "out"} {
			q, err := n.Inspect(path)
			if err != nil {
				a.t.Errorf("Inspect(%s) after a reset = %v, want nil", path, err)
				continue
			}
			views, err := q.Peek(nil, 0, 1000)
			if err != nil {
				a.t.Errorf("peek after a reset = %v, want nil", err)
			}
			for i := range views {
				var sent int64
				if _, err := fmt.Sscan(views[i].MessageID, &sent); err != nil || sent < now {
					a.t.Errorf("after reset %d there is message %s in %s", now, views[i].MessageID, path)
				}
			}
		}
		a.resets.Unlock()
	}
}
