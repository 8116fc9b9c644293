// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
)

// A fakeObserver plays the proxy for the links on which clients receive from orders. Its notes are
// places in seen.
type fakeObserver struct {
	seen     []string // message-ids
	settling []string
	settled  []string
	skip     string // the id of messages that are not remembered
}

func (o *fakeObserver) Delivered(payload []byte) (Note, bool) {
	id := "?"
	for r := amqp.NewReader(payload); !r.Done(); {
		code := r.Descriptor()
		v := r.Raw()
		if r.Err() != nil {
			break // the frame ends within the section
		}
		if code == amqp.CodeProperties {
			field, _ := amqp.ListField(v, amqp.PropertyMessageID)
			id = field.String()
		}
	}
	o.seen = append(o.seen, id)
	return Note{uint64(len(o.seen) - 1)}, id != o.skip
}

func (o *fakeObserver) Settling(n Note) { o.settling = append(o.settling, o.seen[n[0]]) }

func (o *fakeObserver) Settled(n Note) { o.settled = append(o.settled, o.seen[n[0]]) }

// observedScene starts a scene with n messages in orders, and an observer of the link that receives
// them.
func observedScene(t *testing.T, o *fakeObserver, n int, configure ...func(*Config)) *scene {
	t.Helper()
	s := setup(t, func(c *Config) {
		c.Observe = func(l Link) Observer {
			if !l.Receiver || l.Class.Entity() != "orders" {
				t.Errorf("Observe was asked about %+v", l)
				return nil
			}
			return o
		}
		for _, f := range configure {
			f(c)
		}
	}, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "orders", LockDuration: time.Minute}} })
	sender, err := s.ns.Client(t).NewSender("orders", nil)
	s.must(err)
	for i := range n {
		id := fmt.Sprint("m-", i)
		s.must(sender.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id, Body: []byte(strings.Repeat("x", 2000))}, nil))
	}
	return s
}

// taker receives n messages from orders over go-amqp.
func (s *scene) taker(n int, o *goamqp.ReceiverOptions) (*goamqp.Receiver, []*goamqp.Message) {
	s.Helper()
	o.Credit = int32(n)
	r, err := s.raw(nil).NewReceiver(s.Context(), "orders", o)
	s.must(err)
	var ms []*goamqp.Message
	for range n {
		m, err := r.Receive(s.Context(), nil)
		s.must(err)
		ms = append(ms, m)
	}
	return r, ms
}

func peekLock() *goamqp.ReceiverOptions {
	return &goamqp.ReceiverOptions{SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()}
}

func (s *scene) wantSettled(o *fakeObserver, want ...string) {
	s.Helper()
	synctest.Wait()
	if !slices.Equal(o.settled, want) {
		s.Errorf("observed as settled: %v, want %v", o.settled, want)
	}
}

func TestObserverSeesWhatUpstreamHasConfirmed(t *testing.T) {
	for name, frames := range map[string]uint32{"in one frame": 0, "in frames of 512 bytes": 512} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &fakeObserver{}
				s := observedScene(t, o, 6, func(c *Config) { c.MaxFrameSize = frames })
				r, ms := s.taker(6, peekLock())
				s.must(r.AcceptMessage(t.Context(), ms[1]))
				s.must(r.RejectMessage(t.Context(), ms[0], &goamqp.Error{Condition: "com.microsoft:dead-letter"}))
				s.must(r.ReleaseMessage(t.Context(), ms[2]))
				s.must(r.ModifyMessage(t.Context(), ms[3], &goamqp.ModifyMessageOptions{UndeliverableHere: true}))
				s.must(r.ModifyMessage(t.Context(), ms[4], nil))
				s.must(r.AcceptMessage(t.Context(), ms[5]))
				s.wantSettled(o, "m-1", "m-0", "m-5")
				if want := o.settled; !slices.Equal(o.settling, want) {
					t.Errorf("observed as being settled: %v, want %v", o.settling, want)
				}
			})
		})
	}
}

func TestObserverSeesWhatIsReceivedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeObserver{skip: "m-1"}
		s := observedScene(t, o, 3, func(c *Config) { c.MaxFrameSize = 512 })
		s.taker(3, &goamqp.ReceiverOptions{RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr()})
		s.wantSettled(o, "m-0", "m-2")
	})
}

func TestObserverIgnoresWhatUpstreamHasNotConfirmed(t *testing.T) {
	for name, act := range map[string]func(*scene, *goamqp.Receiver, []*goamqp.Message){
		"a lock that was lost": func(s *scene, r *goamqp.Receiver, ms []*goamqp.Message) {
			time.Sleep(61 * time.Second)
			if err := r.AcceptMessage(s.Context(), ms[0]); err == nil {
				s.Error("AcceptMessage = nil, want a lost lock")
			}
		},
		"a refusal": func(s *scene, r *goamqp.Receiver, ms []*goamqp.Message) {
			defer s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSettle, Error: amqp.Errorf(amqp.ErrCondInternalError, "No.")})()
			if err := r.AcceptMessage(s.Context(), ms[0]); err == nil {
				s.Error("AcceptMessage = nil, want the refusal")
			}
		},
		"no answer": func(s *scene, r *goamqp.Receiver, ms []*goamqp.Message) {
			defer s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSettle, Silent: true})()
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			if err := r.AcceptMessage(ctx, ms[0]); err == nil {
				s.Error("AcceptMessage = nil, want that it waits in vain")
			}
		},
		"a link that is gone": func(s *scene, r *goamqp.Receiver, _ []*goamqp.Message) { s.must(r.Close(s.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &fakeObserver{}
				s := observedScene(t, o, 2)
				r, ms := s.taker(2, peekLock())
				act(s, r, ms)
				s.wantSettled(o)
			})
		})
	}
}

// A client may settle without waiting for an answer: nobody knows whether its lock still held.
func TestObserverIgnoresWhatTheClientSettledAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeObserver{}
		s := observedScene(t, o, 2)
		r, ms := s.taker(2, &goamqp.ReceiverOptions{SettlementMode: goamqp.ReceiverSettleModeFirst.Ptr()})
		s.must(r.AcceptMessage(t.Context(), ms[0]))
		s.must(r.AcceptMessage(t.Context(), ms[1]))
		s.wantSettled(o)
	})
}

// The number of observed deliveries is bounded, even if a client settles none; dispositions about
// many are taken apart.
func TestObservedDeliveries(t *testing.T) {
	var q observedList
	l := &link{}
	const first = 1<<32 - 1000 // the numbers wrap
	id := func(i int) uint32 { return uint32(first + uint64(i)) }
	for i := range 3 * maxObserved {
		q.push(id(i), observed{link: l, note: Note{uint64(i)}})
	}
	if q.Len() > maxObserved {
		t.Fatalf("%d deliveries, want %d at most", q.Len(), maxObserved)
	}
	kept := -1
	q.All(func(o *observed) bool {
		if kept < 0 {
			kept = int(o.note[0])
		}
		return false
	})
	var got []uint64
	settle := func(from, to int) {
		got = nil
		q.Each(id(from), id(to), func(o *observed) bool {
			got = append(got, o.note[0])
			return true
		})
	}
	last := 3*maxObserved - 1
	settle(last-1, last+100)
	if !slices.Equal(got, []uint64{uint64(last - 1), uint64(last)}) {
		t.Errorf("settled %v, want the last two", got)
	}
	settle(last-2, last)
	if !slices.Equal(got, []uint64{uint64(last - 2)}) {
		t.Errorf("settled %v, want what was not settled before", got)
	}
	settle(0, kept)
	if !slices.Equal(got, []uint64{uint64(kept)}) {
		t.Errorf("settled %v, want the first that is kept", got)
	}
	settle(0, last)
	if len(got) != last-2-kept-1 || q.Len() != 0 {
		t.Errorf("settled %d and kept %d, want %d and none", len(got), q.Len(), last-2-kept-1)
	}
}

// Dispositions about many deliveries at once, by either side and about different ones.
func TestDispositionsAboutManyObservedDeliveries(t *testing.T) {
	accepted, rejected := amqp.Accepted{}, &amqp.Rejected{}
	for name, tc := range map[string]struct {
		stated    []amqp.Disposition // by the client, about deliveries 0 to 9
		confirmed []amqp.Disposition
		want      []string
	}{
		"one answer to several":  {[]amqp.Disposition{{First: 0, Last: 3, State: accepted}, {First: 4, Last: 5, State: accepted}}, []amqp.Disposition{{First: 1, Last: 4, Settled: true, State: accepted}}, []string{"1", "2", "3", "4"}},
		"several answers to one": {[]amqp.Disposition{{First: 0, Last: 3, State: accepted}}, []amqp.Disposition{{First: 3, Last: 3, Settled: true, State: accepted}, {First: 0, Last: 1, Settled: true, State: accepted}}, []string{"3", "0", "1"}},
		"some are refused":       {[]amqp.Disposition{{First: 0, Last: 2, State: accepted}}, []amqp.Disposition{{First: 0, Last: 1, Settled: true, State: &amqp.Rejected{Error: &amqp.Error{}}}, {First: 2, Last: 2, Settled: true, State: accepted}}, []string{"2"}},
		"dead-lettered":          {[]amqp.Disposition{{First: 0, Last: 1, State: &amqp.Rejected{Error: &amqp.Error{}}}}, []amqp.Disposition{{First: 0, Last: 1, Settled: true, State: rejected}}, []string{"0", "1"}},
		"another answer":         {[]amqp.Disposition{{First: 0, Last: 1, State: accepted}}, []amqp.Disposition{{First: 0, Last: 0, Settled: true, State: rejected}, {First: 1, Last: 1, Settled: true, State: amqp.Released{}}}, nil},
		"not settled":            {[]amqp.Disposition{{First: 0, Last: 1, State: accepted}}, []amqp.Disposition{{First: 0, Last: 1, State: accepted}}, nil},
		"in a transaction":       {[]amqp.Disposition{{First: 0, Last: 1, State: &amqp.TransactionalState{Outcome: accepted}}}, []amqp.Disposition{{First: 0, Last: 1, Settled: true, State: accepted}}, nil},
		"changed its mind":       {[]amqp.Disposition{{First: 0, Last: 1, State: accepted}, {First: 1, Last: 1, State: amqp.Released{}}}, []amqp.Disposition{{First: 0, Last: 1, Settled: true, State: accepted}}, []string{"0"}},
		"no outcome after it":    {[]amqp.Disposition{{First: 0, Last: 0, State: accepted}, {First: 0, Last: 0, State: &amqp.Received{}}}, []amqp.Disposition{{First: 0, Last: 0, Settled: true, State: accepted}}, []string{"0"}},
		"upstream on its own":    {nil, []amqp.Disposition{{First: 0, Last: 9, Settled: true, State: accepted}}, nil},
		"twice":                  {[]amqp.Disposition{{First: 0, Last: 0, State: accepted}}, []amqp.Disposition{{First: 0, Last: 0, Settled: true, State: accepted}, {First: 0, Last: 0, Settled: true, State: accepted}}, []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &fakeObserver{}
			l := &link{observed: &observation{observer: o}}
			h := &half{}
			for i := range 10 {
				o.seen = append(o.seen, fmt.Sprint(i))
				h.observed.push(uint32(i), observed{link: l, note: Note{uint64(i)}})
			}
			for _, d := range tc.stated {
				h.observed.stated(&d, span{d.First, d.Last})
			}
			for _, d := range tc.confirmed {
				h.observed.confirmed(&d)
			}
			if !slices.Equal(o.settled, tc.want) {
				t.Errorf("observed as settled: %v, want %v", o.settled, tc.want)
			}
		})
	}
}
