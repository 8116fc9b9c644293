// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	goamqp "github.com/Azure/go-amqp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/rights"
)

// withSlots monitors every entity, with slots wherever they are possible.
func withSlots(s *setting) {
	s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} }
	s.companions = "slot"
}

// lives is a message with a time to live and, unless id is "", an id. With a property its proxy has
// to stamp a shorter time to live.
func (sc *scene) lives(id string, change ...func(*goamqp.Message)) []byte {
	m := goamqp.NewMessage([]byte("hello"))
	m.Header = &goamqp.MessageHeader{TTL: time.Minute}
	if id != "" {
		m.Properties = &goamqp.MessageProperties{MessageID: id}
	}
	for _, f := range change {
		f(m)
	}
	return sc.encode(m)
}

// A slot names no message, so a message without an id passes as it was sent, alone and in a batch
// with others.
func TestMessagesWithoutAnIDPassUntouchedWithSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, withSlots)
		batch := sc.encode(&goamqp.Message{Data: [][]byte{
			sc.lives(""), sc.lives("m1"), sc.lives("", func(m *goamqp.Message) { m.Header.TTL = 2 * time.Minute }),
			sc.lives("", func(m *goamqp.Message) { m.Properties = &goamqp.MessageProperties{MessageID: ""} }),
			sc.lives("", func(m *goamqp.Message) { m.Header = nil }), // without a deadline
		}})
		w := sc.watch("orders")
		for name, d := range map[string]*relay.Delivery{
			"a message":              {Payload: sc.lives("")},
			"a message with an id":   {Payload: sc.lives("m2")},
			"a batch":                {Payload: batch, Format: amqp.BatchMessageFormat},
			"a batch without room":   {Payload: batch, Format: amqp.BatchMessageFormat, MaxSize: uint64(len(batch))},
			"a message without room": {Payload: sc.lives(""), MaxSize: uint64(len(sc.lives("")))},
		} {
			sent := d.Payload
			x := deliver(t, w, d)
			x.settle(amqp.Accepted{}).wantAnswer("")
			if &x.payload[0] != &sent[0] || len(x.payload) != len(sent) {
				t.Errorf("%s of %d bytes was copied or changed, with %d, want the bytes it came in", name, len(sent), len(x.payload))
			}
		}
		if refs := sc.references(); len(refs) != 0 {
			t.Errorf("references %+v, want slots alone", refs)
		}
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 11 {
			t.Errorf("%v monitored sends are counted, want 11", got)
		}
		if got := testutil.ToFloat64(sc.proxy.metrics.slots.WithLabelValues("orders")); got != 11 {
			t.Errorf("%v sends with slots are counted, want 11", got)
		}
	})
}

// Where a slot stands for a message whose deadline is earlier than its time to live, the message
// gets a shorter time to live, and no id.
func TestMessagesOfSlotsGetATimeToLiveAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, withSlots)
		sent := sc.lives("", func(m *goamqp.Message) { m.ApplicationProperties = map[string]any{"overdue-within": "30s"} })
		x := deliver(t, sc.watch("orders"), &relay.Delivery{Payload: sent})
		x.settle(amqp.Accepted{}).wantAnswer("")
		if m, err := readMessage(x.payload); err != nil || m.ID != "" || m.TTL != 30*time.Second {
			t.Errorf("goes on with id %q and a TTL of %v, %v, want none and 30 s", m.ID, m.TTL, err)
		}
		if !bytes.Equal(sections(t, sent)[amqp.CodeData][0], sections(t, x.payload)[amqp.CodeData][0]) {
			t.Error("its body was changed")
		}
	})
}

// Where slots cannot stand for the messages of a send, each gets an id by which its companion names
// it. A message of a batch that has no deadline has no companion, and gets no id.
func TestMessagesWithoutAnIDGetOneWhereACompanionNamesThem(t *testing.T) {
	at := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		configure func(*setting)
		settings  Settings
		state     amqp.DeliveryState
		change    func(*goamqp.Message)
	}{
		"companions each":         {configure: func(s *setting) { s.companions = "each" }},
		"too few for slots":       {configure: func(s *setting) { s.companions = "auto" }},
		"the clock is not known":  {configure: func(s *setting) { s.measure = false }},
		"the entity has no slots": {settings: Settings{Monitored: true, StampTTL: true}},
		"in a session":            {change: func(m *goamqp.Message) { m.Properties.GroupID = to.Ptr("s") }},
		"scheduled":               {change: func(m *goamqp.Message) { m.Annotations = goamqp.Annotations{annotationScheduledEnqueueTime: at} }},
		"in a transaction":        {state: &amqp.TransactionalState{TxnID: []byte("t")}},
		"an absolute deadline": {change: func(m *goamqp.Message) {
			m.Header, m.ApplicationProperties = nil, map[string]any{"overdue-deadline": at}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, withSlots, func(s *setting) {
					if c.settings.Monitored {
						s.proxy.Settings = func(string) Settings { return c.settings }
					}
					if c.configure != nil {
						c.configure(s)
					}
				})
				sent := sc.lives("", func(m *goamqp.Message) {
					m.Properties = &goamqp.MessageProperties{}
					if c.change != nil {
						c.change(m)
					}
				})
				none := sc.lives("", func(m *goamqp.Message) { m.Header = nil })
				batch := sc.encode(&goamqp.Message{Data: [][]byte{sent, none}})
				d := &relay.Delivery{Payload: batch, Format: amqp.BatchMessageFormat, State: c.state}
				x := deliver(t, sc.watch("orders"), d)
				synctest.Wait()
				x.settle(outcomeOf(c.state)).wantAnswer("")
				ms, err := readPayload(x.payload, amqp.BatchMessageFormat)
				if err != nil || len(ms) != 2 {
					t.Fatalf("%d messages go on, %v, want 2", len(ms), err)
				}
				refs := sc.references()
				if len(refs) != 1 || refs[0].MessageID == "" || refs[0].MessageID != ms[0].ID {
					t.Errorf("references %+v, want one of the message that goes on as %q", refs, ms[0].ID)
				}
				if !bytes.Equal(ms[1].encoded, none) {
					t.Errorf("the message without a deadline goes on as %x, want %x", ms[1].encoded, none)
				}
				if got := testutil.ToFloat64(sc.proxy.metrics.slots.WithLabelValues("orders")); got != 0 {
					t.Errorf("%v sends with slots are counted, want none", got)
				}
			})
		})
	}
}

// Slots are for what the broker expires by itself. Where there is no room for the times to live
// that this takes, companions name the messages: for ids there may be room.
func TestMessagesThatCannotBeStampedAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, withSlots)
		batch := &goamqp.Message{Data: [][]byte{sc.lives("")}}
		for i := range 4 {
			batch.Data = append(batch.Data, sc.within(fmt.Sprint("m", i), "30s").Payload)
		}
		payload := sc.encode(batch)
		x := deliver(t, sc.watch("orders"), &relay.Delivery{Payload: payload, Format: amqp.BatchMessageFormat, MaxSize: uint64(len(payload)) + 30})
		x.settle(amqp.Accepted{}).wantAnswer("")
		ms, err := readPayload(x.payload, amqp.BatchMessageFormat)
		if err != nil || len(ms) != 5 {
			t.Fatalf("%d messages go on, %v, want 5", len(ms), err)
		}
		named := map[string]bool{}
		for _, r := range sc.references() {
			named[r.MessageID] = true
		}
		for i, m := range ms {
			if m.ID == "" || !named[m.ID] || i > 0 && m.TTL != 0 {
				t.Errorf("message %d goes on as %q with a TTL of %v, named %v, want it without a TTL and named", i, m.ID, m.TTL, named[m.ID])
			}
		}
	})
}

// outcomeOf is how the broker accepts a delivery with that state.
func outcomeOf(state amqp.DeliveryState) amqp.DeliveryState {
	if part, ok := state.(*amqp.TransactionalState); ok {
		return &amqp.TransactionalState{TxnID: part.TxnID, Outcome: amqp.Accepted{}}
	}
	return amqp.Accepted{}
}

// A scheduled message has no slot, so it gets an id on its way through $management as well.
func TestScheduledMessagesGetAnIDAlsoWithSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, withSlots)
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		d := sc.request(rights.ScheduleMessage, map[string]any{"messages": []any{map[string]any{"message": sc.scheduled(nil, at, "30s")}}})
		x := deliver(t, sc.watch("orders/$management"), d)
		x.wantReady("")
		ms, err := readScheduled(x.payload)
		if err != nil || len(ms) != 1 {
			t.Fatalf("%d messages go on, %v, want one", len(ms), err)
		}
		if refs := sc.references(); len(refs) != 1 || ms[0].ID == "" || refs[0].MessageID != ms[0].ID {
			t.Errorf("references %+v, want one of the message that goes on as %q", refs, ms[0].ID)
		}
	})
}

// The broker drops a message whose id came before. Overdue neither makes messages without an id
// alike nor tells apart what the app means to be one.
func TestMessagesWithoutAnIDAreNoDuplicates(t *testing.T) {
	for _, companions := range []string{"slot", "each"} {
		t.Run(companions, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setupAMQP(t, withSlots, func(s *setting) {
					s.companions = companions
					s.broker.Queues = []broker.QueueConfig{{Name: "unique", RequiresDuplicateDetection: true, DeadLetteringOnMessageExpiration: true}}
				})
				sender, err := sc.sessionOf(65536).NewSender(t.Context(), "unique", nil)
				sc.must(err)
				for _, id := range []any{nil, nil, "m", "m"} {
					m := goamqp.NewMessage([]byte(fmt.Sprint(id)))
					m.Header, m.Properties = &goamqp.MessageHeader{TTL: time.Minute}, &goamqp.MessageProperties{MessageID: id}
					sc.must(sender.Send(t.Context(), m, nil))
				}
				var bodies []string
				for _, m := range sc.messages("unique") {
					bodies = append(bodies, string(m.Body))
				}
				if got := fmt.Sprint(bodies); got != "[<nil> <nil> m]" {
					t.Errorf("the queue has %v, want both without an id and one m", got)
				}
			})
		})
	}
}

// A request that goes on with its client's token gets an id only where a companion names its
// message. Where none does, it goes on as it came, and the namespace gives the message an id.
func TestRequestsOfClientsGetAnIDOnlyWhereACompanionNamesTheMessage(t *testing.T) {
	const batch = `[{"Body":"b","BrokerProperties":{"TimeToLive":60}},{"Body":"c","BrokerProperties":{"TimeToLive":60}}]`
	for companions, length := range map[string]int{"slot": 32, "each": 16} {
		t.Run(companions, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setupClients(t, withSlots, func(s *setting) { s.companions = companions })
				c, token := sc.browser(), signed(sendKey, "mine")
				a := sc.ask(c, "POST", "/mine/messages", "a", "Authorization", token, "BrokerProperties", `{"TimeToLive":60}`)
				sc.wantAnswer("send", a, http.StatusCreated, "")
				a = sc.ask(c, "POST", "/mine/messages", batch, "Authorization", token, "Content-Type", "application/vnd.microsoft.servicebus.json")
				sc.wantAnswer("send a batch", a, http.StatusCreated, "")
				ms := sc.messages("mine")
				if len(ms) != 3 {
					t.Fatalf("%d messages arrived, want 3", len(ms))
				}
				for _, m := range ms {
					if len(m.MessageID) != length {
						t.Errorf("%s has id %q, want one of %d digits", m.Body, m.MessageID, length)
					}
				}
			})
		})
	}
}

// The REST API gives every message an id, so the REST endpoint does, whether or not a companion
// names the message.
func TestMessagesOfTheRESTEndpointHaveAnID(t *testing.T) {
	for _, companions := range []string{"slot", "each"} {
		t.Run(companions, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, withSlots, func(s *setting) { s.companions = companions })
				sc.want(sc.post("/orders/messages", "a", "BrokerProperties", `{"TimeToLive":60}`), http.StatusCreated, "")
				ms, refs := sc.messages("orders"), sc.references()
				if len(ms) != 1 || len(ms[0].MessageID) != 16 {
					t.Fatalf("message %+v, want one with an id of the endpoint", ms)
				}
				if companions == "each" && (len(refs) != 1 || refs[0].MessageID != ms[0].MessageID) {
					t.Errorf("references %+v, want one of %q", refs, ms[0].MessageID)
				}
			})
		})
	}
}
