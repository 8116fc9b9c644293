// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/rights"
)

// request is a request to a management node as the Go SDK encodes it.
func (sc *scene) request(operation string, body any) *relay.Delivery {
	sc.Helper()
	return &relay.Delivery{Payload: sc.encode(&goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: "request-1"},
		ApplicationProperties: map[string]any{"operation": operation, "com.microsoft:server-timeout": uint64(1000)},
		Value:                 body,
	})}
}

// scheduled is an encoded message that is scheduled.
func (sc *scene) scheduled(id any, at time.Time, within string) []byte {
	sc.Helper()
	return sc.encode(&goamqp.Message{
		Annotations:           goamqp.Annotations{"x-opt-scheduled-enqueue-time": at},
		Properties:            &goamqp.MessageProperties{MessageID: id},
		ApplicationProperties: map[string]any{"overdue-within": within},
		Data:                  [][]byte{[]byte("hello")},
	})
}

// valueOf decodes the body of a request.
func (sc *scene) valueOf(payload []byte) any {
	sc.Helper()
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		sc.Fatal(err)
	}
	r, ok := m.Value()
	v := r.Value()
	if !ok || r.Err() != nil {
		sc.Fatalf("request %x: %v", payload, r.Err())
	}
	return v
}

func TestARequestThatSchedulesGoesBehindItsCompanions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		withID, withoutID := sc.scheduled("m1", at, "30s"), sc.scheduled(nil, at, "40s")
		anonymous := sc.scheduled(nil, at, "50s")
		d := sc.request(rights.ScheduleMessage, map[string]any{"other": int32(1), "messages": []any{
			map[string]any{"message-id": "m1", "message": withID, "partition-key": "p"},
			map[string]any{"message-id": "m2", "message": withoutID},
			map[string]any{"message": anonymous},
		}})
		before := sc.valueOf(d.Payload)
		whole := sections(t, d.Payload)
		x := deliver(t, sc.watch("orders/$management"), d)
		if !x.waits {
			t.Fatal("the request goes on together with its companions, want it to wait")
		}
		x.wantReady("")
		refs := sc.references()
		if len(refs) != 3 || refs[0].MessageID != "m1" || refs[1].MessageID != "m2" {
			t.Fatalf("references %+v, want one of m1, m2 and a third", refs)
		}
		if want := at.Add(30 * time.Second); !refs[0].Deadline.Equal(want) {
			t.Errorf("deadline %v, want %v: it counts from the scheduled time", refs[0].Deadline, want)
		}

		for code, section := range sections(t, x.payload) {
			if code != amqp.CodeAMQPValue && cmp.Diff(whole[code], section) != "" {
				t.Errorf("section 0x%x became %x", code, section)
			}
		}
		ms, err := readScheduled(x.payload)
		if err != nil || len(ms) != 3 {
			t.Fatalf("%d messages go on, %v, want 3", len(ms), err)
		}
		for i, sent := range [][]byte{withID, withoutID, anonymous} {
			checkCompleted(t, sent, ms[i].encoded, ms[i].TTL)
			if ms[i].TTL != refs[i].Within || ms[i].ID != refs[i].MessageID || ms[i].ID == "" {
				t.Errorf("message %d goes on as %q with a TTL of %v, want %q and %v", i, ms[i].ID, ms[i].TTL, refs[i].MessageID, refs[i].Within)
			}
		}
		// Beside the messages nothing has changed.
		blank := func(v any) any {
			for _, p := range v.(amqp.Map) {
				if p.Key == "messages" {
					for _, entry := range p.Value.(amqp.List) {
						for i := range entry.(amqp.Map) {
							if e := &entry.(amqp.Map)[i]; e.Key == "message" {
								e.Value = nil
							}
						}
					}
				}
			}
			return v
		}
		if diff := cmp.Diff(blank(before), blank(sc.valueOf(x.payload))); diff != "" {
			t.Errorf("request (-sent +got):\n%s", diff)
		}
		x.settle(amqp.Accepted{}).wantAnswer("")
		if got := sc.sendsByAMQP("orders", resultMonitored); got != 3 {
			t.Errorf("%v monitored sends are counted, want 3", got)
		}
	})
}

func TestARequestThatSchedulesIsRejectedWithoutItsCompanions(t *testing.T) {
	for _, settled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sc := setup(t, func(s *setting) { s.queues, s.measure = nil, false })
			d := sc.request(rights.ScheduleMessage, map[string]any{"messages": []any{
				map[string]any{"message-id": "m1", "message": sc.scheduled("m1", time.Now().Add(time.Hour), "30s")},
			}})
			d.Settled = settled
			x := deliver(t, sc.watch("orders/$management"), d)
			time.Sleep(time.Minute)
			x.wantReady("com.microsoft:server-busy")
		})
	}
}

func TestOtherRequestsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MonitorQueue = monitorQueue })
		w := sc.watch("orders/$management")
		for _, operation := range []string{"com.microsoft:cancel-scheduled-message", rights.PeekMessage} {
			deliver(t, w, sc.request(operation, map[string]any{"sequence-numbers": []int64{1}})).wantPassed()
		}
	})
}

// The namespace may be able to read a request that the proxy cannot read: then it would be a send
// that nobody watches.
func TestRequestsThatCannotBeReadAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MonitorQueue = monitorQueue })
		w := sc.watch("orders/$management")
		deliver(t, w, sc.request("", nil)).wantRefused("com.microsoft:argument-error", "names no operation")
		deliver(t, w, sc.request("com.microsoft:schedule-messages", nil)).wantRefused("amqp:not-implemented", "is not supported")
		deliver(t, w, &relay.Delivery{Payload: []byte("hello")}).wantRefused("amqp:decode-error", "cannot be read")
		for _, entry := range []any{map[string]any{"message": "text"}, map[string]any{"message": []byte("x")}, "no map"} {
			deliver(t, w, sc.request(rights.ScheduleMessage, map[string]any{"messages": []any{entry}})).wantRefused("amqp:not-allowed", "")
		}
		deliver(t, w, sc.request(rights.ScheduleMessage, map[string]any{"messages": "none"})).wantRefused("amqp:not-allowed", "no list of messages")
		bad := sc.scheduled("m1", time.Now().Add(time.Hour), "soon")
		deliver(t, w, sc.request(rights.ScheduleMessage, map[string]any{"messages": []any{map[string]any{"message": bad}}})).wantRefused("amqp:not-allowed", "overdue-within")
	})
}

func TestTheMonitorQueueTakesNothingFromApps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MonitorQueue = monitorQueue })
		deliver(t, sc.watch("monitor"), sc.within("m1", "30s")).wantRefused("amqp:not-allowed", "monitor queue")
		w := sc.watch("Monitor/$management")
		for _, operation := range []string{rights.ScheduleMessage, "com.microsoft:cancel-scheduled-message", "com.microsoft:batch-delete-messages", ""} {
			deliver(t, w, sc.request(operation, nil)).wantRefused("amqp:not-allowed", "monitor queue")
		}
		deliver(t, w, sc.request(rights.PeekMessage, nil)).wantPassed()
	})
}
