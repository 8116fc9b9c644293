// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rights"
	"overdue/internal/testing/pipenet"
)

// mortal is a message of the SDK with a deadline.
func mortal(id, deadline string) *azservicebus.Message {
	m := &azservicebus.Message{Body: []byte("hello"), ApplicationProperties: map[string]any{"overdue-within": deadline}}
	if id != "" {
		m.MessageID = &id
	}
	return m
}

func TestAnAppSendsThroughTheAMQPDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s := sc.sender("orders")
		sc.must(s.SendMessage(t.Context(), mortal("m1", "30s"), nil))
		sc.must(s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("no deadline")}, nil))
		b, err := s.NewMessageBatch(t.Context(), nil)
		sc.must(err)
		sc.must(b.AddMessage(mortal("m2", "40s"), nil))
		sc.must(b.AddMessage(mortal("", "50s"), nil))
		sc.must(s.SendMessageBatch(t.Context(), b, nil))

		held := sc.messages("orders")
		if len(held) != 4 {
			t.Fatalf("orders holds %d messages, want 4", len(held))
		}
		refs := sc.references()
		if len(refs) != 3 {
			t.Fatalf("references %+v, want 3", refs)
		}
		for i, m := range []*azservicebus.ReceivedMessage{held[0], held[2], held[3]} {
			if refs[i].MessageID != m.MessageID || *m.TimeToLive != refs[i].Within {
				t.Errorf("message %q with a TTL of %v, want %q with %v", m.MessageID, *m.TimeToLive, refs[i].MessageID, refs[i].Within)
			}
			if at := *m.EnqueuedTime; at.Before(refs[i].From) || at.After(refs[i].Until) {
				t.Errorf("enqueued at %v, want within %v and %v", at, refs[i].From, refs[i].Until)
			}
		}
		if monitored, not := sc.sendsByAMQP("orders", resultMonitored), sc.sendsByAMQP("orders", resultUnmonitored); monitored != 3 || not != 1 {
			t.Errorf("%v monitored and %v unmonitored sends are counted, want 3 and 1", monitored, not)
		}
		r, err := sc.app.NewReceiverForQueue("orders", nil)
		sc.must(err)
		got, err := r.ReceiveMessages(t.Context(), 4, nil)
		sc.must(err)
		for _, m := range got {
			sc.must(r.CompleteMessage(t.Context(), m, nil))
		}
		if len(got) == 0 || len(sc.messages("orders")) != 4-len(got) {
			t.Errorf("%d messages were received and completed through the endpoint, %d are left of 4", len(got), len(sc.messages("orders")))
		}
	})
}

func TestAnAppSchedulesThroughTheAMQPDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s := sc.sender("orders")
		at := time.Now().Add(time.Hour).UTC()
		numbers, err := s.ScheduleMessages(t.Context(), []*azservicebus.Message{mortal("m1", "30s"), mortal("", "40s")}, at, nil)
		sc.must(err)
		annotated := mortal("m3", "50s")
		annotated.ScheduledEnqueueTime = &at
		sc.must(s.SendMessage(t.Context(), annotated, nil))
		sc.must(s.CancelScheduledMessages(t.Context(), numbers[:1], nil))

		refs := sc.references()
		if len(refs) != 3 {
			t.Fatalf("references %+v, want 3", refs)
		}
		for i, within := range []time.Duration{30 * time.Second, 40 * time.Second, 50 * time.Second} {
			if want := at.Truncate(time.Millisecond).Add(within); !refs[i].Deadline.Equal(want) {
				t.Errorf("deadline %v, want %v", refs[i].Deadline, want)
			}
		}
		time.Sleep(time.Hour + time.Second)
		held := sc.messages("orders")
		if len(held) != 2 {
			t.Fatalf("orders holds %d messages, want the two that were not cancelled", len(held))
		}
		for i, m := range held {
			ref := refs[i+1]
			if m.MessageID != ref.MessageID || *m.TimeToLive != ref.Within || m.EnqueuedTime.Before(ref.From) || m.EnqueuedTime.After(ref.Until) {
				t.Errorf("message %q with a TTL of %v enqueued at %v, want what is referred to by %+v", m.MessageID, *m.TimeToLive, m.EnqueuedTime, ref)
			}
		}
	})
}

// The response counts, not that the request was accepted.
func TestARequestThatTheBrokerRefusesIsNoSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s := sc.sender("orders")
		remove := sc.ns.Broker.Default().Inject(broker.Fault{
			Entity: "orders", Operation: broker.OnManagement, Request: rights.ScheduleMessage, Error: broker.EntityFull(),
		})
		if _, err := s.ScheduleMessages(t.Context(), []*azservicebus.Message{mortal("m1", "30s")}, time.Now().Add(time.Hour), nil); err == nil {
			t.Error("ScheduleMessages of a full queue = nil, want the broker's refusal")
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 0 {
			t.Errorf("%v monitored sends are counted, want none: the broker has refused it", got)
		}
		remove()
		_, err := s.ScheduleMessages(t.Context(), []*azservicebus.Message{mortal("m2", "30s")}, time.Now().Add(time.Hour), nil)
		sc.must(err)
		synctest.Wait()
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 1 {
			t.Errorf("%v monitored sends are counted, want one", got)
		}
	})
}

func TestAnAppRetriesWhatHasNoCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, func(s *setting) { s.queues, s.measure = nil, false })
		s := sc.sender("orders")
		err := s.SendMessage(t.Context(), mortal("m1", "30s"), nil)
		var remote *goamqp.Error
		if !errors.As(err, &remote) || remote.Condition != "com.microsoft:server-busy" || !strings.Contains(remote.Description, "monitor queue") {
			t.Fatalf("SendMessage = %v, want server-busy, in our words", err)
		}
		if n := len(sc.messages("orders")); n != 1 {
			t.Errorf("%d work messages are left by 4 tries, want one", n)
		}
		_, err = s.ScheduleMessages(t.Context(), []*azservicebus.Message{mortal("m2", "30s")}, time.Now().Add(time.Hour), nil)
		if err == nil || !strings.Contains(err.Error(), "status code 503") || !strings.Contains(err.Error(), "monitor queue") {
			t.Errorf("ScheduleMessages = %v, want a response with 503, in our words", err)
		}
		if n := len(sc.messages("orders")); n != 1 {
			t.Errorf("orders holds %d messages, want no scheduled one", n)
		}
		// The monitor queue comes while the app retries.
		result := make(chan error, 1)
		go func() { result <- s.SendMessage(t.Context(), mortal("m3", "30s"), nil) }()
		time.Sleep(500 * time.Millisecond)
		sc.must(sc.ns.Broker.AddQueue(broker.QueueConfig{Name: monitorQueue}))
		sc.must(<-result)
		if refs := sc.references(); len(refs) == 0 || refs[len(refs)-1].MessageID != "m3" {
			t.Errorf("references %+v, want one of m3", refs)
		}
	})
}

func TestBadSendsAreFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		start := time.Now()
		for entity, m := range map[string]*azservicebus.Message{"orders": mortal("m1", "soon"), "monitor": mortal("m1", "30s")} {
			err := sc.sender(entity).SendMessage(t.Context(), m, nil)
			var remote *goamqp.Error
			if !errors.As(err, &remote) || remote.Condition != goamqp.ErrCondNotAllowed {
				t.Errorf("send to %s = %v, want not-allowed", entity, err)
			}
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the refusals took %v, want no retry", took)
		}
		// The links are as good as before.
		sc.must(sc.sender("orders").SendMessage(t.Context(), mortal("m2", "30s"), nil))
	})
}

func TestWhatIsSentSettledIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s, err := sc.session().NewSender(t.Context(), "orders", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
		sc.must(err)
		m := goamqp.NewMessage([]byte("hello"))
		m.ApplicationProperties = map[string]any{"overdue-within": "30s"}
		sc.must(s.Send(t.Context(), m, nil))
		synctest.Wait()
		held, refs := sc.messages("orders"), sc.references()
		if len(held) != 1 || len(refs) != 1 || held[0].MessageID != refs[0].MessageID {
			t.Errorf("orders holds %d messages, references %+v, want one of each for the same message", len(held), refs)
		}
	})
}

// Frames of 512 bytes cut messages anywhere; what goes on is longer than what came.
func TestMessagesOfAnySizeArriveAsTheyWereSent(t *testing.T) {
	for _, frame := range []uint32{512, 65536} {
		t.Run(fmt.Sprint(frame), func(t *testing.T) {
			w := seeded(t)
			synctest.Test(t, func(t *testing.T) {
				sc := setupAMQP(t, func(s *setting) { s.proxy.AMQP.MaxFrameSize = frame })
				s := sc.sender("orders")
				want := map[string][]byte{}
				for i := range 40 {
					id := fmt.Sprintf("m%d", i)
					body := make([]byte, w.IntN(100_000))
					w.fill(body)
					want[id] = body
					m := mortal(id, "1h")
					m.Body, m.Subject = body, to.Ptr("subject")
					sc.must(s.SendMessage(t.Context(), m, nil))
				}
				got := map[string][]byte{}
				for _, m := range sc.messages("orders") {
					got[m.MessageID] = m.Body
					if *m.Subject != "subject" || m.ApplicationProperties["overdue-within"] != "1h" || *m.TimeToLive != time.Hour {
						t.Errorf("message %q has subject %q, properties %v, TTL %v", m.MessageID, *m.Subject, m.ApplicationProperties, *m.TimeToLive)
					}
				}
				if !maps.EqualFunc(want, got, bytes.Equal) { // go-cmp would take seconds for each megabyte
					t.Errorf("%d messages arrived otherwise than %d were sent", len(got), len(want))
				}
			})
		})
	}
}

func (w writer) fill(b []byte) {
	for i := range b {
		b[i] = byte(w.Uint32())
	}
}

// Many links share few places. Everything that is acknowledged has its companion, and each link
// keeps its order.
func TestManyAppsShareThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apps, each = 8, 25
		sc := setupAMQP(t, func(s *setting) { s.proxy.MaxInFlight = 3 })
		sc.must(sc.sender("orders").SendMessage(t.Context(), mortal("warm", "1h"), nil))
		var wg sync.WaitGroup
		for a := range apps {
			s := sc.sender("orders")
			wg.Go(func() {
				for i := range each {
					if err := s.SendMessage(t.Context(), mortal(fmt.Sprintf("%d/%d", a, i), "1h"), nil); err != nil {
						t.Errorf("app %d, message %d: %v", a, i, err)
					}
				}
			})
		}
		wg.Wait()
		next := map[byte]int{}
		for _, m := range sc.messages("orders")[1:] {
			if want := fmt.Sprintf("%c/%d", m.MessageID[0], next[m.MessageID[0]]); m.MessageID != want {
				t.Fatalf("message %q, want %q", m.MessageID, want)
			}
			next[m.MessageID[0]]++
		}
		ids := map[string]bool{}
		for _, r := range sc.references() {
			ids[r.MessageID] = true
		}
		if len(ids) != 1+apps*each {
			t.Errorf("%d messages have companions, want %d", len(ids), 1+apps*each)
		}
	})
}

// An acknowledged message is there and has a companion, whatever happens to the connections.
func TestAppsSurviveConnectionsThatAreCut(t *testing.T) {
	w := seeded(t)
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s := sc.sender("orders")
		sc.must(s.SendMessage(t.Context(), mortal("warm", "1h"), nil))
		acknowledged := map[string]bool{"warm": true}
		for i := range 60 {
			if w.IntN(6) == 0 {
				delay := time.Duration(w.IntN(2000)) * time.Microsecond
				cut := sc.front
				if w.IntN(2) == 0 {
					cut = sc.ns.Net
				}
				time.AfterFunc(delay, func() { cut.Cut() })
			}
			id := fmt.Sprintf("m%d", i)
			if err := s.SendMessage(t.Context(), mortal(id, "1h"), nil); err == nil {
				acknowledged[id] = true
			}
			time.Sleep(time.Duration(w.IntN(3)) * time.Millisecond)
		}
		if len(acknowledged) < 30 {
			t.Errorf("%d of 61 sends were acknowledged, want most: the SDK recovers", len(acknowledged))
		}
		there, watched := map[string]bool{}, map[string]bool{}
		for _, m := range sc.messages("orders") {
			there[m.MessageID] = true
		}
		for _, r := range sc.references() {
			watched[r.MessageID] = true
		}
		for id := range acknowledged {
			if !there[id] || !watched[id] {
				t.Errorf("%s was acknowledged; in the queue: %v, with a companion: %v", id, there[id], watched[id])
			}
		}
	})
}

// A send that is under way when the proxy closes is finished, companion included, and acknowledged.
func TestCloseFinishesWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		s := sc.sender("orders")
		sc.must(s.SendMessage(t.Context(), mortal("warm", "1h"), nil))
		sc.ns.Net.Delay(pipenet.Both, 200*time.Millisecond)
		sent := make(chan error, 1)
		go func() { sent <- s.SendMessage(t.Context(), mortal("m1", "30s"), nil) }()
		time.Sleep(100 * time.Millisecond) // neither the message nor its companion has arrived
		sc.must(sc.proxy.Close(t.Context()))
		if err := <-sent; err != nil {
			t.Errorf("SendMessage = %v, want what was under way to be acknowledged", err)
		}
		sc.ns.Net.Delay(pipenet.Both, 0)
		if refs := sc.references(); len(refs) != 2 || refs[0].MessageID != "m1" {
			t.Errorf("references %+v, want one of m1", refs)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.SendMessage(ctx, mortal("m2", "30s"), nil); err == nil {
			t.Error("a send is acknowledged after Close")
		}
		if n := len(sc.messages("orders")); n != 2 {
			t.Errorf("orders holds %d messages, want 2", n)
		}
	})
}

func TestAppsReceiveNoCompanions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		session := sc.session()
		for _, address := range []string{monitorQueue, strings.ToUpper(monitorQueue), "amqps://host/" + monitorQueue, monitorQueue + ".2"} {
			_, err := session.NewReceiver(t.Context(), address, nil)
			var refused *goamqp.Error
			if !errors.As(err, &refused) || refused.Condition != goamqp.ErrCondNotAllowed {
				t.Errorf("a receiver on %s: %v, want not-allowed", address, err)
			}
		}
		if _, err := session.NewReceiver(t.Context(), "orders", &goamqp.ReceiverOptions{Credit: -1}); err != nil {
			t.Errorf("a receiver on another queue: %v", err)
		}
	})
}
