// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/rights"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

func TestADeliveryIsAnsweredWhenItsCompanionIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.warm()
		w := sc.watch("orders")
		sc.ns.Net.Delay(pipenet.Both, 50*time.Millisecond)
		x := deliver(t, w, sc.within("m1", "30s"))
		if x.waits {
			t.Error("the delivery waits for its companion, want it to go on at once")
		}
		if m, err := readMessage(x.payload); err != nil || m.TTL != 30*time.Second {
			t.Errorf("goes on as %+v, %v, want a TTL of 30 s", m, err)
		}
		x.settle(amqp.Accepted{}).wantAnswer("-")
		time.Sleep(200 * time.Millisecond)
		x.wantAnswer("")
		sc.ns.Net.Delay(pipenet.Both, 0)
		refs := sc.references()
		if len(refs) != 2 || refs[0].MessageID != "m1" || refs[0].Within != 30*time.Second {
			t.Errorf("references %+v, want m1 and the one of the warm-up", refs)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 1 {
			t.Errorf("%v monitored sends are counted, want 1", got)
		}
	})
}

func TestADeliveryWithoutADeadlineIsOnlyCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		d := sc.within("", "")
		before := bytes.Clone(d.Payload)
		x := deliver(t, sc.watch("orders"), d)
		if x.waits || !bytes.Equal(x.payload, before) {
			t.Errorf("waits %v, payload %x, want it as it came: %x", x.waits, x.payload, before)
		}
		x.settle(amqp.Accepted{}).wantAnswer("")
		if refs := sc.references(); len(refs) != 0 {
			t.Errorf("references %+v, want none", refs)
		}
		if got := sc.sendsByAMQP("orders", resultUnmonitored); got != 1 {
			t.Errorf("%v unmonitored sends are counted, want 1", got)
		}
	})
}

func TestADeliveryIsRejectedWithoutItsCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues, s.measure = nil, false })
		w := sc.watch("orders")
		x := deliver(t, w, sc.within("m1", "30s"))
		x.settle(amqp.Accepted{})
		time.Sleep(time.Minute)
		x.wantAnswer("com.microsoft:server-busy") // which the app retries

		// From now on the companion goes first: the retries must not leave more work messages.
		x = deliver(t, w, sc.within("m1", "30s"))
		if !x.waits {
			t.Fatal("the delivery goes on together with its companion, want it to wait")
		}
		time.Sleep(time.Minute)
		x.wantReady("com.microsoft:server-busy")

		if err := sc.ns.Broker.AddQueue(broker.QueueConfig{Name: monitorQueue}); err != nil {
			t.Fatal(err)
		}
		x = deliver(t, w, sc.within("m1", "30s"))
		time.Sleep(time.Minute)
		x.wantReady("")
		x.settle(amqp.Accepted{}).wantAnswer("")
		if x = deliver(t, w, sc.within("m2", "30s")); x.waits {
			t.Error("the delivery waits though the monitor queue is back")
		}
		x.settle(amqp.Accepted{}).wantAnswer("")
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 2 {
			t.Errorf("%v monitored sends are counted, want 2", got)
		}
	})
}

func TestTheBrokersOwnWordPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		w := sc.watch("orders")
		full := &amqp.Rejected{Error: amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "full")}
		deliver(t, w, sc.within("m1", "30s")).settle(full).wantAnswer("")
		deliver(t, w, sc.within("m2", "30s")).settle(amqp.Released{}).wantAnswer("")
		part := &amqp.TransactionalState{TxnID: []byte{1}, Outcome: amqp.Accepted{}}
		deliver(t, w, sc.within("m3", "30s")).settle(part).wantAnswer("")
		if refused, failed := sc.sendsByAMQP(otherEntities, resultRefused), sc.sendsByAMQP(otherEntities, resultFailed); refused != 1 || failed != 1 {
			t.Errorf("%v refused and %v failed sends are counted, want one of each", refused, failed)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 1 {
			t.Errorf("%v monitored sends are counted, want the one in the transaction", got)
		}
	})
}

func TestALateOutcomeGetsASecondCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		x := deliver(t, sc.watch("orders"), sc.within("m1", "30s"))
		time.Sleep(5 * time.Second)
		x.settle(amqp.Accepted{}).wantAnswer("")
		refs := sc.references()
		if len(refs) != 2 || refs[1].Until.Before(time.Now().Add(-time.Second)) {
			t.Errorf("references %+v, want a second one with a window up to now", refs)
		}
	})
}

func TestAMessageThatIsSentSettledIsWatchedAsWellAsMayBe(t *testing.T) {
	settled := func(d *relay.Delivery) *relay.Delivery { d.Settled = true; return d }
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		x := deliver(t, sc.watch("orders"), settled(sc.within("m1", "30s")))
		x.settle(nil)
		if refs := sc.references(); len(refs) != 1 || refs[0].MessageID != "m1" {
			t.Errorf("references %+v, want one of m1", refs)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 1 {
			t.Errorf("%v monitored sends are counted, want 1", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues, s.measure = nil, false })
		w := sc.watch("orders")
		for range 2 { // the companion does not go first after its failure: nothing could be refused
			x := deliver(t, w, settled(sc.within("m1", "30s")))
			if x.waits {
				t.Error("the delivery waits for a companion, want it to go on")
			}
			x.settle(nil)
			time.Sleep(time.Minute)
		}
		deliver(t, w, settled(sc.within("m1", "soon"))).wantPassed()
		if got := sc.sendsByAMQP("orders", resultUnmonitored); got != 3 {
			t.Errorf("%v unmonitored sends are counted, want 3", got)
		}
	})
}

func TestDeliveriesWithBadDeadlinesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, MaxMessageSize: 100} }
		})
		w := sc.watch("orders")
		deliver(t, w, sc.within("m1", "soon")).wantRefused("amqp:not-allowed", "overdue-within")
		past := goamqp.NewMessage(nil)
		past.ApplicationProperties = map[string]any{"overdue-deadline": time.Now().Add(-time.Hour)}
		deliver(t, w, &relay.Delivery{Payload: sc.encode(past)}).wantRefused("amqp:not-allowed", "has passed")
		symbol := goamqp.NewMessage(nil)
		symbol.ApplicationProperties = map[string]any{"overdue-deadline": int64(5)}
		deliver(t, w, &relay.Delivery{Payload: sc.encode(symbol)}).wantRefused("amqp:not-allowed", "of type int64")
		deliver(t, w, &relay.Delivery{Payload: []byte("hello")}).wantRefused("amqp:not-allowed", "cannot be read")
		deliver(t, w, &relay.Delivery{Payload: sc.encode(goamqp.NewMessage(make([]byte, 101)))}).wantRefused("amqp:link:message-size-exceeded", "orders")
		if got := sc.sendsByAMQP(otherEntities, resultRefused); got != 5 {
			t.Errorf("%v refused sends are counted, want 5", got)
		}
	})
}

func TestABatchHasAReferenceForEachMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		batch := &goamqp.Message{Data: [][]byte{
			sc.within("m1", "30s").Payload, sc.within("m2", "").Payload, sc.within("", "20s").Payload,
		}}
		x := deliver(t, sc.watch("orders"), &relay.Delivery{Payload: sc.encode(batch), Format: amqp.BatchMessageFormat})
		x.settle(amqp.Accepted{}).wantAnswer("")
		ms, err := readPayload(x.payload, amqp.BatchMessageFormat)
		if err != nil || len(ms) != 3 {
			t.Fatalf("%d messages go on, %v, want 3", len(ms), err)
		}
		refs := sc.references()
		if len(refs) != 2 || refs[0].MessageID != ms[2].ID || ms[2].ID == "" || refs[1].MessageID != "m1" {
			t.Errorf("references %+v, want one of the third message, %q, and one of m1", refs, ms[2].ID)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 2 {
			t.Errorf("%v monitored sends are counted, want 2", got)
		}
	})
}

func TestACompletedDeliveryFitsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		w := sc.watch("orders")
		d := sc.within("m1", "30s")
		d.MaxSize = uint64(len(d.Payload))
		x := deliver(t, w, d)
		if m, err := readMessage(x.payload); err != nil || m.TTL != 0 || len(x.payload) > int(d.MaxSize) {
			t.Errorf("goes on as %+v, %v, of %d bytes, want it without a TTL in %d", m, err, len(x.payload), d.MaxSize)
		}
		x.settle(amqp.Accepted{}).wantAnswer("")
		if refs := sc.references(); len(refs) != 1 || refs[0].Within != 30*time.Second {
			t.Errorf("references %+v, want one", refs)
		}
		d = sc.within("", "30s")
		d.MaxSize = uint64(len(d.Payload)) - 1
		deliver(t, w, d).wantRefused("amqp:link:message-size-exceeded", "orders")
	})
}

// Where there is no room for ids, messages go without. One reference stands for all that have one
// deadline.
func TestADeliveryWithoutRoomForIDsGoesAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		w := sc.watch("orders")
		batch := &goamqp.Message{Data: [][]byte{
			sc.within("", "30s").Payload, sc.within("", "20s").Payload, sc.within("", "").Payload, sc.within("", "30s").Payload, sc.within("m1", "30s").Payload,
		}}
		payload := sc.encode(batch)
		x := deliver(t, w, &relay.Delivery{Payload: payload, Format: amqp.BatchMessageFormat, MaxSize: uint64(len(payload) + 20)})
		x.settle(amqp.Accepted{}).wantAnswer("")
		if !bytes.Equal(x.payload, payload) {
			t.Errorf("the batch of %d bytes goes on changed, with %d, want every byte as it was sent", len(payload), len(x.payload))
		}
		refs := sc.references()
		slices.SortFunc(refs, func(a, b scheduler.Reference) int {
			return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.MessageID, b.MessageID))
		})
		if len(refs) != 3 || refs[0].Within != 20*time.Second || refs[1].Within != 30*time.Second || refs[2].MessageID != "m1" ||
			!refs[0].WithoutID() || !refs[1].WithoutID() || refs[0].Until.IsZero() || refs[1].SessionID != "" {
			t.Errorf("references %+v, want one for each of the two deadlines, and that of m1", refs)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 4 {
			t.Errorf("%v monitored sends are counted, want 4", got)
		}
	})
	// While the broker's clock is not known, nothing can be found without a name.
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.measure = false })
		d := sc.within("", "30s")
		d.MaxSize = uint64(len(d.Payload))
		deliver(t, sc.watch("orders"), d).wantRefused("amqp:link:message-size-exceeded", "orders")
	})
}

// Slots are for what the broker expires itself: not for messages that there was no room to stamp.
func TestMessagesThatAreNotStampedHaveNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} }
			s.companions = "slot"
		})
		w := sc.watch("orders")
		d := sc.within("m1", "30s")
		d.MaxSize = uint64(len(d.Payload))
		deliver(t, w, d).settle(amqp.Accepted{}).wantAnswer("")
		if refs := sc.references(); len(refs) != 1 || refs[0].MessageID != "m1" {
			t.Errorf("references %+v, want one", refs)
		}
	})
}

// Places are given back by what is settled and by links that go.
func TestDeliveriesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MaxInFlight = 1 })
		first := sc.watch("orders")
		second := sc.watch("orders")
		x := deliver(t, first, sc.within("m1", "30s"))
		y := deliver(t, second, sc.within("m2", "30s"))
		if x.waits || !y.waits {
			t.Fatalf("the first waits: %v, the second: %v, want the second to wait for a place", x.waits, y.waits)
		}
		time.Sleep(time.Second)
		y.wantReady("-")
		x.settle(amqp.Accepted{}).wantAnswer("")
		y.wantReady("")
		if m, err := readMessage(y.payload); err != nil || m.TTL != 30*time.Second {
			t.Errorf("goes on as %+v, %v, want a TTL of 30 s", m, err)
		}
		z := deliver(t, first, sc.within("m3", "30s"))
		second.Detached() // and takes the place of m2 with it
		z.wantReady("")
		u := deliver(t, first, sc.within("m4", "30s"))
		time.Sleep(time.Minute)
		u.wantReady("com.microsoft:server-busy")
	})
}

func TestTheWindowOfATransactionLastsUntilItCanHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		d := sc.within("m1", "30s")
		d.State = &amqp.TransactionalState{TxnID: []byte{1}}
		deliver(t, sc.watch("orders"), d).settle(&amqp.TransactionalState{TxnID: []byte{1}, Outcome: amqp.Accepted{}}).wantAnswer("")
		refs := sc.references()
		if len(refs) != 1 || refs[0].Until.Before(time.Now().Add(2*time.Minute)) {
			t.Errorf("references %+v, want one whose window is open for two minutes", refs)
		}
	})
}

func TestWhichLinksAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.proxy.MonitorQueue = monitorQueue
			s.proxy.Excluded = func(entity string) bool { return !strings.EqualFold(entity, "orders") }
		})
		via := func(address, to string) *amqp.Attach {
			b, err := amqp.AppendValue(nil, amqp.Map{{Key: amqp.Symbol(rights.TransferDestination), Value: to}})
			if err != nil {
				t.Fatal(err)
			}
			a := senderTo(address)
			a.Properties = b
			return a
		}
		for _, c := range []struct {
			attach *amqp.Attach
			want   string
		}{
			{senderTo("orders"), "send"},
			{senderTo("/Orders/"), "send"},
			{senderTo("amqps://contoso.servicebus.windows.net:5671/orders"), "send"},
			{senderTo("orders/$management"), "management"},
			{senderTo("sb://contoso/orders/$Management"), "management"},
			{receiverFrom("orders/$management"), ""},
			{senderTo("orders/$DeadLetterQueue"), ""},
			{senderTo("orders/$DeadLetterQueue/$management"), "dead letters"},
			{senderTo("monitor/$DeadLetterQueue/$management"), "dead letters"},
			{via("others", "orders"), "send"},
			{via("orders", "others"), ""},
			{via("orders", "Monitor"), "monitor"},
			{senderTo("others"), ""},
			{senderTo("$cbs"), ""},
			{senderTo("$management"), ""},
			{senderTo(""), ""},
			{&amqp.Attach{Role: amqp.RoleSender, Coordinator: &amqp.Coordinator{}}, ""},
			{senderTo("MONITOR"), "monitor"},
			{senderTo("monitor/$management"), "monitor"},
			{senderTo("monitor.2"), "monitor"},
			{senderTo("Monitor.4/$management"), "monitor"},
			{senderTo("monitor.2x"), ""},
		} {
			got := ""
			switch w := sc.proxy.watch(linkOf(c.attach)).(type) {
			case *sendLink:
				got = "send"
				w.Detached()
			case *managementLink:
				got = "management"
				w.Detached()
			case guard:
				switch _, refusal := w.Deliver(&relay.Delivery{}); {
				case strings.Contains(refusal.Description, "is the monitor queue"):
					got = "monitor"
				case !strings.Contains(refusal.Description, "It is not possible to send"):
					got = "dead letters"
				}
			}
			if got != c.want {
				t.Errorf("link %+v is watched as %q, want %q", c.attach, got, c.want)
			}
		}
	})
}
