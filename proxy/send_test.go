// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

func TestASendLeavesACompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		before := time.Now()
		sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s", "BrokerProperties", `{"MessageId":"m1"}`), http.StatusCreated, "")

		held := sc.messages("orders")
		if len(held) != 1 || *held[0].TimeToLive != 30*time.Second {
			t.Fatalf("orders holds %d messages with TTL %v, want one with 30 s", len(held), held[0].TimeToLive)
		}
		companions := sc.companions()
		if len(companions) != 1 || len(companions[0].References) != 1 {
			t.Fatalf("%d companions, want one with one reference", len(companions))
		}
		c, ref := companions[0], companions[0].References[0]
		if ref.MessageID != "m1" || ref.Within != 30*time.Second || ref.Stated != byWithin {
			t.Errorf("reference %+v, want m1 within 30 s, stated so", ref)
		}
		if at := *held[0].EnqueuedTime; at.Before(ref.From) || at.After(ref.Until) {
			t.Errorf("enqueued at %v, want within %v and %v", at, ref.From, ref.Until)
		}
		if early := before.Add(30 * time.Second).Sub(c.Due); early <= 0 || early > 300*time.Millisecond {
			t.Errorf("due %v before the deadline, want at most 300 ms", early)
		}
		if got := sc.sends("orders", resultMonitored); got != 1 {
			t.Errorf("%v monitored sends are counted, want 1", got)
		}
	})
}

func TestAMessageWithoutADeadlinePassesUntouched(t *testing.T) {
	off := func(s *setting) {
		s.proxy.Settings = func(string) Settings { return Settings{StampTTL: true, Deadline: time.Minute} }
	}
	for name, change := range map[string]func(*setting){"it has none": func(*setting) {}, "the entity is not monitored": off} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, change)
				sc.want(sc.post("/orders/messages", "hello"), http.StatusCreated, "")
				if held := sc.messages("orders"); len(held) != 1 || held[0].TimeToLive != nil && *held[0].TimeToLive != 0 {
					t.Errorf("orders holds %d messages, want one without a TTL", len(held))
				}
				if refs := sc.references(); len(refs) != 0 {
					t.Errorf("references %+v, want none", refs)
				}
				if got := sc.sends("orders", resultUnmonitored); got != 1 {
					t.Errorf("%v unmonitored sends are counted, want 1", got)
				}
			})
		})
	}
}

func TestAScheduledMessageIsDueAfterItsActivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
		sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s",
			"BrokerProperties", fmt.Sprintf(`{"ScheduledEnqueueTimeUtc":%q}`, at.Format(http.TimeFormat))), http.StatusCreated, "")
		ref := sc.references()[0]
		if want := at.Add(30 * time.Second); !ref.Deadline.Equal(want) {
			t.Errorf("deadline %v, want %v", ref.Deadline, want)
		}
		time.Sleep(time.Hour + time.Second)
		held := sc.messages("orders")
		enqueued := *held[0].EnqueuedTime
		if enqueued.Before(ref.From) || enqueued.After(ref.Until) {
			t.Errorf("enqueued at %v, want within %v and %v", enqueued, ref.From, ref.Until)
		}
		if got := held[0].ExpiresAt.Sub(enqueued); got != 30*time.Second {
			t.Errorf("expires %v after its activation, want 30 s", got)
		}
	})
}

// The machine's clock and the broker's differ; the app computes its deadline on the broker's. The
// broker must not expire the message before, whatever TTL the proxy makes of it.
func TestAnAbsoluteDeadlineHoldsOnTheBrokersClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		for _, measure := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/%v", skew, measure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sc := setup(t, func(s *setting) { s.broker.ClockOffset, s.measure = skew, measure })
					sc.warm()
					sc.ns.Net.Delay(pipenet.Both, 3*time.Millisecond)
					deadline := sc.ns.Broker.Now().Add(15 * time.Minute).UTC()
					sc.want(sc.post("/orders/messages", "hello", "overdue-deadline", deadline.Format(time.RFC3339Nano)), http.StatusCreated, "")
					sc.ns.Net.Delay(pipenet.Both, 0)
					m := sc.messages("orders")[1]
					stamped := m.TimeToLive != nil && *m.TimeToLive > 0
					if stamped != measure {
						t.Errorf("TTL stamped = %v, want %v: the clock is measured = %v", stamped, measure, measure)
					}
					if stamped {
						expires := m.EnqueuedTime.Add(*m.TimeToLive)
						if off := expires.Sub(deadline); off < 0 || off > time.Second {
							t.Errorf("expires %v after the deadline, want 0 to 1 s", off)
						}
					}
					if !slices.ContainsFunc(sc.references(), func(r scheduler.Reference) bool { return r.Deadline.Equal(deadline) }) {
						t.Errorf("references %+v, want one with the deadline %v", sc.references(), deadline)
					}
				})
			})
		}
	}
}

func TestASendFailsWithoutItsCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues, s.measure = nil, false })
		post := func() *httptest.ResponseRecorder {
			return sc.post("/orders/messages", "hello", "overdue-within", "30s")
		}
		sc.want(post(), http.StatusServiceUnavailable, "monitor queue")
		first := len(sc.messages("orders"))
		// The app retries. From now on the companion goes first, so that it does not leave one
		// more work message with every attempt.
		for range 3 {
			sc.want(post(), http.StatusServiceUnavailable, "monitor queue")
		}
		if got := len(sc.messages("orders")); got != first {
			t.Errorf("orders holds %d messages after three more attempts, want still %d", got, first)
		}
		// A message without a deadline needs no companion.
		sc.want(sc.post("/orders/messages", "hello"), http.StatusCreated, "")
		sc.want(post(), http.StatusServiceUnavailable, "monitor queue")

		if err := sc.ns.Broker.AddQueue(broker.QueueConfig{Name: monitorQueue}); err != nil {
			t.Fatal(err)
		}
		sc.want(post(), http.StatusCreated, "")
		if sc.proxy.companionFirst.Load() {
			t.Error("the companion still goes first after it was written")
		}
		// An entity has a label of its own once a send to it has succeeded.
		if other, orders := sc.sends(otherEntities, resultFailed), sc.sends("orders", resultFailed); other != 4 || orders != 1 {
			t.Errorf("%v failed sends are counted without a name and %v for orders, want 4 and 1", other, orders)
		}
	})
}

func TestALateAcknowledgementGetsASecondCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.want(sc.post("/orders/messages", "warm", "BrokerProperties", `{"MessageId":"m0"}`), http.StatusCreated, "")
		sc.ns.Net.Stall(pipenet.ToListener) // the messages wait on the way to the broker
		answer := make(chan *httptest.ResponseRecorder)
		go func() {
			answer <- sc.post("/orders/messages", "hello", "overdue-within", "30s", "BrokerProperties", `{"MessageId":"m1"}`)
		}()
		time.Sleep(5 * time.Second)
		sc.ns.Net.Resume(pipenet.ToListener)
		sc.want(<-answer, http.StatusCreated, "")

		held := sc.messages("orders")
		enqueued := *held[len(held)-1].EnqueuedTime
		covered := 0
		refs := sc.references()
		for _, ref := range refs {
			if ref.MessageID == "m1" && !enqueued.Before(ref.From) && !enqueued.After(ref.Until) {
				covered++
				if ref.Deadline.Before(enqueued.Add(30 * time.Second)) {
					t.Errorf("the companion that covers the message expects its deadline at %v, want not before %v", ref.Deadline, enqueued.Add(30*time.Second))
				}
			}
		}
		if len(refs) != 2 || covered != 1 {
			t.Errorf("%d references, %d with a window around %v, want 2 and 1", len(refs), covered, enqueued)
		}
	})
}

func TestASendRunsToItsEndWhenTheAppHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.want(sc.post("/orders/messages", "warm"), http.StatusCreated, "")
		sc.ns.Net.Delay(pipenet.Both, 100*time.Millisecond)
		ctx, hangUp := context.WithCancel(t.Context())
		answer := make(chan *httptest.ResponseRecorder)
		go func() { answer <- sc.postWith(ctx, "/orders/messages", "hello", "overdue-within", "30s") }()
		time.Sleep(50 * time.Millisecond)
		hangUp()
		sc.want(<-answer, http.StatusCreated, "")
		sc.ns.Net.Delay(pipenet.Both, 0)
		if held, refs := len(sc.messages("orders")), len(sc.references()); held != 2 || refs != 1 {
			t.Errorf("orders holds %d messages and there are %d references, want 2 and 1", held, refs)
		}
	})
}

func TestSendsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MaxInFlight, s.proxy.SendTimeout = 2, 10*time.Second })
		sc.warm()
		sc.ns.Net.Stall(pipenet.ToDialer)
		answers := make(chan *httptest.ResponseRecorder, 2)
		for range 2 {
			go func() { answers <- sc.post("/orders/messages", "hello", "overdue-within", "30s") }()
		}
		synctest.Wait()
		// The app's own timeout bounds the wait, too.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		sc.want(sc.postWith(ctx, "/orders/messages", "third"), http.StatusServiceUnavailable, "in flight")
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("the third send waited %v for a place, want 1 s", waited)
		}
		sc.ns.Net.Resume(pipenet.ToDialer)
		for range 2 {
			sc.want(<-answers, http.StatusCreated, "")
		}
		sc.want(sc.post("/orders/messages", "fourth"), http.StatusCreated, "")
	})
}

func TestASendThatTheBrokerDoesNotAnswerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.SendTimeout = 5 * time.Second })
		sc.want(sc.post("/orders/messages", "warm"), http.StatusCreated, "")
		sc.ns.Net.Stall(pipenet.ToDialer)
		start := time.Now()
		sc.want(sc.post("/orders/messages", "hello"), http.StatusServiceUnavailable, "in time")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the send took %v, want 5 s", took)
		}
		sc.ns.Net.Resume(pipenet.ToDialer)
		sc.want(sc.post("/orders/messages", "again", "overdue-within", "30s"), http.StatusCreated, "")
	})
}

func TestSendsSurviveALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for i := range 5 {
			sc.want(sc.post("/orders/messages", fmt.Sprint(i), "overdue-within", "30s"), http.StatusCreated, "")
			if n := sc.ns.Net.Cut(); n == 0 {
				t.Fatal("there was no connection to cut")
			}
		}
		sc.want(sc.post("/orders/messages", "last", "overdue-within", "30s"), http.StatusCreated, "")
		if got := len(sc.messages("orders")); got < 6 {
			t.Errorf("orders holds %d messages, want at least 6", got)
		}
	})
}

func TestCloseWaitsForSendsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.want(sc.post("/orders/messages", "warm"), http.StatusCreated, "")
		sc.ns.Net.Stall(pipenet.ToListener)
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- sc.post("/orders/messages", "hello", "overdue-within", "30s") }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := sc.proxy.Close(ctx); err == nil {
			t.Error("Close = nil with a send in flight, want an error when its context ends")
		}
		sc.want(sc.post("/orders/messages", "new"), http.StatusServiceUnavailable, "stopping")
		sc.ns.Net.Resume(pipenet.ToListener)
		sc.want(<-answer, http.StatusCreated, "")
		if err := sc.proxy.Close(t.Context()); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
}

func TestManyFirstSendsOpenOneLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		attached := 0
		sc := setup(t, func(s *setting) {
			s.broker.Trace = func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(line, "attach") && strings.Contains(line, "orders") && !strings.Contains(line, "$") {
					attached++
				}
			}
		})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s"), http.StatusCreated, "") })
		}
		wg.Wait()
		mu.Lock()
		if attached > 2 { // one performative each way
			t.Errorf("%d attach performatives for orders, want 2", attached)
		}
		mu.Unlock()
		if refs := sc.references(); len(refs) != 50 {
			t.Errorf("%d references, want 50", len(refs))
		}
	})
}

func TestABatchIsAllOrNothingAndEachMessageHasItsPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		batch := `[
			{"Body":"a","BrokerProperties":{"MessageId":"a","TimeToLiveTimeSpan":"00:00:40"}},
			{"Body":"b","BrokerProperties":{"MessageId":"b"},"UserProperties":{"overdue-within":"30s"}},
			{"Body":"c","BrokerProperties":{"MessageId":"c"}},
			{"Body":"b","BrokerProperties":{"MessageId":"b"},"UserProperties":{"overdue-within":"20s"}}
		]`
		sc.want(sc.post("/orders/messages", batch, "Content-Type", rest.BatchContentType+"; charset=utf-8"), http.StatusCreated, "")
		got := map[string]time.Duration{}
		for _, m := range sc.messages("orders") {
			ttl := time.Duration(0)
			if m.TimeToLive != nil {
				ttl = *m.TimeToLive
			}
			got[m.MessageID+ttl.String()] = ttl
		}
		want := map[string]time.Duration{"a40s": 40 * time.Second, "b30s": 30 * time.Second, "c0s": 0, "b20s": 20 * time.Second}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("TTLs (-want +got):\n%s", diff)
		}
		if refs := sc.references(); len(refs) != 3 {
			t.Errorf("%d references, want 3", len(refs))
		}
		if m, u := sc.sends("orders", resultMonitored), sc.sends("orders", resultUnmonitored); m != 3 || u != 1 {
			t.Errorf("%v monitored and %v unmonitored messages are counted, want 3 and 1", m, u)
		}

		tooLarge := `[{"Body":"` + strings.Repeat("x", 200_000) + `"},{"Body":"` + strings.Repeat("y", 200_000) + `"}]`
		sc.want(sc.post("/orders/messages", tooLarge, "Content-Type", rest.BatchContentType), http.StatusForbidden, "larger")
		if got := len(sc.messages("orders")); got != 4 {
			t.Errorf("orders holds %d messages after a batch that was refused, want still 4", got)
		}
	})
}
