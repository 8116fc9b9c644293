// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/racetest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// early has proxy and monitor in one process, which learns what is settled through its endpoint.
func early(s *scene, _ *broker.Config) { s.oneProcess = true }

// traffic is an app that sends and one that receives, both through the AMQP endpoint.
type traffic struct {
	*scene
	client   *azservicebus.Client
	sender   *azservicebus.Sender
	receiver *azservicebus.Receiver
}

func (s *scene) traffic() *traffic {
	s.Helper()
	s.MeasureClock()
	tr := &traffic{scene: s, client: s.clientAt(s.endpoint())}
	var err error
	if tr.sender, err = tr.client.NewSender(workQueue, nil); err != nil {
		s.Fatal(err)
	}
	tr.receiver = tr.consumer(tr.client, nil)
	return tr
}

func (s *scene) consumer(c *azservicebus.Client, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	r, err := c.NewReceiverForQueue(workQueue, o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = r.Close(context.Background()) }) // the endpoint may be closed
	return r
}

// send sends messages one by one.
func (tr *traffic) send(life time.Duration, ids ...string) {
	tr.Helper()
	for _, id := range ids {
		tr.Must(tr.sender.SendMessage(tr.Context(), &azservicebus.Message{MessageID: &id, TimeToLive: &life, Body: []byte(id)}, nil))
	}
}

// batch sends messages as one transfer, so that they share a companion.
func (tr *traffic) batch(life time.Duration, ids ...string) {
	tr.Helper()
	b, err := tr.sender.NewMessageBatch(tr.Context(), nil)
	tr.Must(err)
	for _, id := range ids {
		tr.Must(b.AddMessage(&azservicebus.Message{MessageID: &id, TimeToLive: &life, Body: []byte(id)}, nil))
	}
	tr.Must(tr.sender.SendMessageBatch(tr.Context(), b, nil))
}

// receive takes n messages under lock.
func (tr *traffic) receive(n int) []*azservicebus.ReceivedMessage {
	tr.Helper()
	var got []*azservicebus.ReceivedMessage
	for len(got) < n {
		ms, err := tr.receiver.ReceiveMessages(tr.Context(), n-len(got), nil)
		tr.Must(err)
		got = append(got, ms...)
	}
	return got
}

// complete receives n messages and completes them.
func (tr *traffic) complete(n int) {
	tr.Helper()
	for _, m := range tr.receive(n) {
		tr.Must(tr.receiver.CompleteMessage(tr.Context(), m, nil))
	}
}

// waitingCompanions is how many are not due yet.
func (s *scene) waitingCompanions() int { return int(s.CompanionsKept().Waiting) }

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return ids
}

func TestMessageThatIsSettledInTimeTakesItsCompanionAlong(t *testing.T) {
	for name, settle := range map[string]func(*traffic){
		"completed": func(tr *traffic) { tr.complete(20) },
		"dead-lettered": func(tr *traffic) {
			for _, m := range tr.receive(20) {
				tr.Must(tr.receiver.DeadLetterMessage(tr.Context(), m, &azservicebus.DeadLetterOptions{Reason: to.Ptr("Bad")}))
			}
		},
		"received and deleted": func(tr *traffic) {
			tr.receiver = tr.consumer(tr.client, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			tr.receive(20)
		},
		"completed at the second delivery": func(tr *traffic) {
			for _, m := range tr.receive(20) {
				tr.Must(tr.receiver.AbandonMessage(tr.Context(), m, nil))
			}
			tr.complete(20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inStores(t, func(s *scene) {
				tr := s.traffic()
				s.startMonitor()
				tr.send(time.Minute, numbered("single", 10)...)
				tr.batch(time.Minute, numbered("batch", 10)...)
				if s.waitingCompanions() == 0 {
					t.Fatal("no companion waits, want some")
				}
				settle(tr)
				time.Sleep(10 * time.Second)
				if got := s.waitingCompanions(); got != 0 {
					t.Errorf("%d companions wait after all messages were settled, want none", got)
				}
				if got := s.Verdicts(workQueue, "met"); got != 20 {
					t.Errorf("%v deadlines are counted as met, want 20", got)
				}
				time.Sleep(2 * time.Minute)
				if got := s.Operations("receive"); got != 0 {
					t.Errorf("the monitor received %v companions, want none", got)
				}
				if notified := s.Hook.Subjects(); len(notified) != 0 {
					t.Errorf("notified %v, want nothing", notified)
				}
			}, early)
		})
	}
}

func TestMessageThatIsNotSettledKeepsItsCompanion(t *testing.T) {
	for name, leave := range map[string]func(*traffic){
		"abandoned": func(tr *traffic) { tr.Must(tr.receiver.AbandonMessage(tr.Context(), tr.receive(1)[0], nil)) },
		"lapsed":    func(tr *traffic) { tr.receive(1) },
		"settled too late": func(tr *traffic) {
			m := tr.receive(1)[0]
			time.Sleep(70 * time.Second) // the lock has lapsed
			err := tr.receiver.CompleteMessage(tr.Context(), m, nil)
			if code := (*azservicebus.Error)(nil); !errors.As(err, &code) || code.Code != azservicebus.CodeLockLost {
				tr.Fatalf("CompleteMessage = %v, want a lost lock", err)
			}
		},
		"refused by the broker": func(tr *traffic) {
			m := tr.receive(1)[0]
			defer tr.Namespace.Broker.Default().Inject(broker.Fault{Operation: broker.OnSettle, Error: amqp.Errorf(amqp.ErrCondInternalError, "Not now.")})()
			// The SDK tries again, finds that it has settled the message, and says that all is
			// well.
			_ = tr.receiver.CompleteMessage(tr.Context(), m, nil)
		},
		"left by a consumer that is gone": func(tr *traffic) {
			tr.receive(1)
			tr.Must(tr.receiver.Close(tr.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				tr := s.traffic()
				s.startMonitor()
				tr.send(3*time.Minute, "m")
				leave(tr)
				time.Sleep(10 * time.Second)
				if got := s.waitingCompanions(); got != 1 {
					t.Errorf("%d companions wait, want the one", got)
				}
				time.Sleep(5 * time.Minute)
				if got := s.Hook.Subjects(); !slices.Equal(got, []string{"m"}) {
					t.Errorf("notified %v, want that m was missed", got)
				}
			}, early)
		})
	}
}

func TestCompanionOfManyWaitsForTheLast(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		ids := numbered("m", 30)
		tr.batch(time.Minute, ids...)
		got := tr.receive(30)
		for _, m := range got[:29] {
			tr.Must(tr.receiver.CompleteMessage(tr.Context(), m, nil))
		}
		time.Sleep(10 * time.Second)
		if got := s.waitingCompanions(); got != 1 {
			t.Errorf("%d companions wait for the last message, want 1", got)
		}
		tr.Must(tr.receiver.AbandonMessage(tr.Context(), got[29], nil))
		time.Sleep(2 * time.Minute)
		if got, want := s.Hook.Subjects(), []string{got[29].MessageID}; !slices.Equal(got, want) {
			t.Errorf("notified %v, want %v", got, want)
		}
		if lags := s.Lags(workQueue); len(lags) != 1 || lags[0] > 250*time.Millisecond {
			t.Errorf("lags %v, want one of at most 250ms", lags)
		}
	}, early)
}

// Two messages with one id: that one of them is settled does not say which.
func TestAmbiguousSettlementCancelsNothing(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		tr.send(time.Minute, "twin", "twin")
		tr.complete(1)
		time.Sleep(10 * time.Second)
		if got := s.waitingCompanions(); got == 0 {
			t.Error("no companion waits for the twin that is left")
		}
		time.Sleep(2 * time.Minute)
		if got := s.Hook.Subjects(); !slices.Equal(got, []string{"twin"}) {
			t.Errorf("notified %v, want the twin that nobody received", got)
		}
	}, early)
}

// An id that comes again later is another message.
func TestSettlementOfAnEarlierMessageWithTheSameID(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		tr.send(time.Minute, "again")
		first := tr.receive(1)[0]
		time.Sleep(10 * time.Second)
		tr.send(time.Minute, "again")
		tr.Must(tr.receiver.CompleteMessage(tr.Context(), first, nil))
		time.Sleep(10 * time.Second)
		if got := s.waitingCompanions(); got != 1 {
			t.Errorf("%d companions wait, want that of the second message alone", got)
		}
		time.Sleep(2 * time.Minute)
		if lags := s.Lags(workQueue); len(lags) != 1 || lags[0] > 250*time.Millisecond {
			t.Errorf("lags %v, want one of at most 250ms", lags)
		}
	}, early)
}

// A companion that is due too soon to be cancelled becomes due, and its message is not searched
// for.
func TestDueCompanionOfSettledMessagesCostsNoCheck(t *testing.T) {
	play(t, func(s *scene) {
		tr := s.traffic()
		s.startMonitor()
		tr.send(2*time.Second, numbered("m", 20)...)
		tr.complete(20)
		time.Sleep(time.Minute)
		if got := s.Operations("peek"); got != 0 {
			t.Errorf("%v peeks, want none", got)
		}
		if got := s.Verdicts(workQueue, "met"); got != 20 {
			t.Errorf("%v deadlines are counted as met, want 20", got)
		}
		if got := s.Operations("receive"); got == 0 {
			t.Error("the monitor received no companion, want those that became due")
		}
		s.Settled(time.Second)
	}, early)
}

// The same traffic, consumed through the endpoint and past it.
func TestEarlyCancelSparesOperations(t *testing.T) {
	cost := func(t *testing.T, through bool) (perMessage float64) {
		play(t, func(s *scene) {
			tr := s.traffic()
			if !through {
				tr.receiver = s.consumer(s.Client, nil)
			}
			s.startMonitor()
			const seconds, rate = 20, 25
			for i := range seconds * rate {
				tr.send(30*time.Second, fmt.Sprint("m-", i))
				if i%5 == 4 {
					tr.complete(5)
				}
				time.Sleep(time.Second / rate)
			}
			time.Sleep(2 * time.Minute)
			s.Settled(time.Second)
			schedules, all := s.Operations("schedule")+s.Operations("probe"), s.Operations("")
			perMessage = (all - schedules) / (seconds * rate)
			t.Logf("consumed through the endpoint %v: %.3f operations a message beyond writing its companion (receive %v, peek %v, complete %v, cancel %v)",
				through, perMessage, s.Operations("receive"), s.Operations("peek"), s.Operations("complete"), s.Operations("cancel"))
		}, early)
		return perMessage
	}
	past, through := cost(t, false), cost(t, true)
	if through > past/10 {
		t.Errorf("%.3f operations a message when consumed through the endpoint, %.3f past it; want a tenth at most", through, past)
	}
}

// A consumer settles its message late, at the very instants in which the monitor searches for it
// and nudges. A message that passes an endpoint has missed no deadline, whatever its companion
// names, and whether or not somebody takes the dead letters of others away.
func TestSettlementDuringTheNudge(t *testing.T) {
	for name, drained := range map[string]bool{"dead letters stay": false, "dead letters are drained": true} {
		for companions, slots := range map[string]bool{"each": false, "slot": true} {
			t.Run(name+", "+companions, func(t *testing.T) {
				mistaken := 0
				step := time.Duration(racetest.Sized(500, 4000)) * time.Microsecond
				for after := time.Duration(0); after < 40*time.Millisecond; after += step {
					play(t, func(s *scene) { mistaken += s.settleAfterDeadline(after, drained) }, early, func(s *scene, _ *broker.Config) { s.slots = slots })
				}
				if mistaken > 0 {
					t.Errorf("%d settlements were taken for missed deadlines, want none", mistaken)
				}
			})
		}
	}
}

// settleAfterDeadline completes a message through the endpoint so long after its deadline, and
// returns how many notifications of it there were.
func (s *scene) settleAfterDeadline(after time.Duration, drained bool) (mistaken int) {
	s.Helper()
	s.MeasureClock()
	tr := s.traffic()
	s.startMonitor()
	if drained {
		defer s.drainDeadLetters()()
		tr.send(2*time.Second, numbered("missed", 5)...)
		time.Sleep(6 * time.Second)
	}
	tr.send(2*time.Second, "m")
	expires := time.Now().Add(2 * time.Second)
	m := tr.receive(1)[0]
	time.Sleep(time.Until(expires.Add(after)))
	s.Must(tr.receiver.CompleteMessage(s.Context(), m, nil))
	time.Sleep(time.Minute)
	s.Settled(time.Second)
	for _, id := range s.Hook.Subjects() {
		if id == "m" {
			mistaken++
		}
	}
	return mistaken
}

// drainDeadLetters deletes the dead letters of the work queue as they come, until stop is called.
func (s *scene) drainDeadLetters() (stop func()) {
	s.Helper()
	r := s.consumer(s.Client, &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = r.ReceiveMessages(ctx, 10, nil) // an error: ctx has ended
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
