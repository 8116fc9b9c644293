// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// wantState checks the state of a session; "" is none.
func (s sessions) wantState(r *azservicebus.SessionReceiver, want string) {
	s.Helper()
	got, err := r.GetSessionState(s.ctx, nil)
	s.must(err)
	if string(got) != want || want == "" && got != nil {
		s.Errorf("state of session %q = %q, want %q", r.SessionID(), got, want)
	}
}

// listSessions returns all sessions of the queue, page by page, sorted.
func (s sessions) listSessions(o *azservicebus.ListSessionsOptions) (all []string) {
	s.Helper()
	pager := s.client.NewListSessionsForQueuePager(s.queue, o)
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must(err)
		all = append(all, page.Sessions...)
	}
	slices.Sort(all)
	return all
}

func (s sessions) wantSessions(what string, got []string, want ...string) {
	s.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("sessions %s: %q, want %q", what, got, want)
	}
}

// peekSession returns the bodies of what a session holds from a number upwards.
func (s sessions) peekSession(args map[string]any) (bodies []string) {
	s.Helper()
	_, reply := s.manage(s.queue, "peek-message", args)
	body, _ := reply.Value.(map[string]any)
	messages, _ := body["messages"].([]any)
	for _, entry := range messages {
		var m amqp.Message
		s.must(m.UnmarshalBinary(entry.(map[string]any)["message"].([]byte)))
		bodies = append(bodies, string(m.GetData()))
	}
	return bodies
}

var sessionManageSpecs = []spec{
	{name: "the state of a session", queue: sessionful, check: func(s *scene) {
		r := s.sessions.accept("a")
		s.sessions.wantState(r, "")
		s.must(r.SetSessionState(s.ctx, []byte("hello"), nil))
		s.sessions.wantState(r, "hello")
		s.must(r.Close(s.ctx))
		s.target.Wait(20 * time.Minute)
		r = s.sessions.acceptFrom(s.newClient(), "a") // it had no messages
		s.sessions.wantState(r, "hello")
		s.sessions.wantState(s.sessions.accept("b"), "")
		s.must(r.SetSessionState(s.ctx, nil, nil))
		s.sessions.wantState(r, "")
	}},
	{name: "listing sessions page by page, those with a state alone included", queue: sessionful, check: func(s *scene) {
		const n = 120 // two pages
		var want []string
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		for i := range n {
			id := fmt.Sprintf("session-%03d", i)
			want = append(want, id)
			s.must(batch.AddMessage(&azservicebus.Message{Body: []byte("x"), SessionID: &id}, nil))
		}
		s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		r := s.sessions.accept("state only")
		s.must(r.SetSessionState(s.ctx, []byte("x"), nil))
		s.must(r.Close(s.ctx))
		empty := s.sessions.accept("locked only")
		s.sessions.wantSessions("by default", s.sessions.listSessions(nil), append(want, "state only")...)
		s.must(empty.Close(s.ctx))
	}},
	{name: "listing sessions by the time of their state", queue: sessionful, check: func(s *scene) {
		s.sessions.wantSessions("of an empty queue", s.sessions.listSessions(nil))
		s.sessions.inSession("messages only", "1")
		set := func(id string) {
			r := s.sessions.accept(id)
			s.must(r.SetSessionState(s.ctx, []byte("x"), nil))
			s.must(r.Close(s.ctx))
		}
		before := s.clock().Add(-10 * time.Minute)
		set("early")
		s.target.Wait(20 * time.Minute)
		between := s.clock().Add(-10 * time.Minute)
		set("late")
		after := s.clock().Add(10 * time.Minute)
		for _, c := range []struct {
			what string
			at   time.Time
			want []string
		}{{"since before", before, []string{"early", "late"}}, {"since between", between, []string{"late"}}, {"since after", after, nil}} {
			s.sessions.wantSessions(c.what, s.sessions.listSessions(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &c.at}), c.want...)
		}
	}},
	{name: "what .NET takes for the end of time lists by default, and its beginning every state", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("message", "1")
		r := s.sessions.accept("state")
		s.must(r.SetSessionState(s.ctx, []byte("x"), nil))
		list := func(args map[string]any) (ids []string) {
			args["skip"], args["top"] = int32(0), int32(10)
			_, reply := s.manage(s.queue, "get-message-sessions", args)
			body, _ := reply.Value.(map[string]any)
			ids, _ = body["sessions-ids"].([]string)
			slices.Sort(ids)
			return ids
		}
		s.sessions.wantSessions("with the last moment of the year 9999",
			list(map[string]any{"last-updated-time": time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)}), "message", "state")
		s.sessions.wantSessions("with the first moment of the year 1", list(map[string]any{"last-updated-time": time.Time{}}), "state")
	}},
	{name: "a deferred message is received under the lock of its session", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1", "2")
		r := s.sessions.accept("a")
		m := s.sessions.inOrder(r, "1")[0]
		s.must(r.DeferMessage(s.ctx, m, nil))
		s.must(r.CompleteMessage(s.ctx, s.sessions.inOrder(r, "2")[0], nil))
		numbers := []int64{*m.SequenceNumber}
		ask := func(id string) map[string]any {
			return map[string]any{"sequence-numbers": numbers, "receiver-settle-mode": uint32(1), "session-id": id}
		}
		other := s.sessions.accept("b")
		s.wantStatus(404, "com.microsoft:message-not-found", s.queue, "receive-by-sequence-number", ask("b"))
		s.must(other.Close(s.ctx))
		s.must(r.Close(s.ctx))
		s.sessions.wantNoSession("when all is deferred")
		s.sessions.wantSessions("when all is deferred", s.sessions.listSessions(nil))
		s.wantStatus(410, string(condSessionLockLost), s.queue, "receive-by-sequence-number", ask("a"))
		r = s.sessions.accept("a")
		s.wantStatus(200, "", s.queue, "receive-by-sequence-number", ask("a"))
		s.must(r.Close(s.ctx)) // gives it back
		r = s.sessions.accept("a")
		deferred, err := r.ReceiveDeferredMessages(s.ctx, numbers, nil)
		s.must(err)
		s.wantBodies("deferred", deferred, "1")
		s.must(r.CompleteMessage(s.ctx, deferred[0], nil))
		peeked, err := r.PeekMessages(s.ctx, 10, nil)
		s.must(err)
		s.wantBodies("left", peeked)
	}},
	{name: "peeking into one session", queue: sessionful, check: func(s *scene) {
		s.sessions.inSession("a", "1")
		s.sessions.inSession("b", "2")
		s.sessions.inSession("a", "3", "4")
		r := s.sessions.accept("a")
		first := s.sessions.inOrder(r, "1")[0]
		for _, c := range []struct {
			id    string
			from  int64
			count int32
			want  []string
		}{
			{"a", 1, 10, []string{"1", "3", "4"}}, {"a", *first.SequenceNumber + 1, 10, []string{"3", "4"}},
			{"a", 1, 2, []string{"1", "3"}}, {"b", 1, 10, []string{"2"}}, {"c", 1, 10, nil},
		} {
			got := s.sessions.peekSession(map[string]any{"from-sequence-number": c.from, "message-count": c.count, "session-id": c.id})
			if !slices.Equal(got, c.want) {
				s.Errorf("peeked %d of session %q from %d: %q, want %q", c.count, c.id, c.from, got, c.want)
			}
		}
		all := s.sessions.peekSession(map[string]any{"from-sequence-number": int64(1), "message-count": int32(10)})
		if want := []string{"1", "2", "3", "4"}; !slices.Equal(all, want) {
			s.Errorf("peeked without a session: %q, want %q", all, want)
		}
		peeked, err := r.PeekMessages(s.ctx, 1, nil)
		s.must(err)
		s.wantBodies("peeked over the receiver", peeked, "1")
	}},
	{name: "a scheduled message makes its session available when it is due", queue: sessionful, check: func(s *scene) {
		_, err := s.sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("1"), SessionID: new("a")}}, s.clock().Add(10*time.Minute), nil)
		s.must(err)
		s.sessions.wantNoSession("before it is due")
		s.target.Wait(10*time.Minute + time.Second)
		s.sessions.inOrder(s.sessions.acceptNext("a"), "1")
	}},
	{name: "requests that make no sense are refused", queue: sessionful, check: func(s *scene) {
		const argument, outOfRange = "com.microsoft:argument-error", "com.microsoft:argument-out-of-range"
		for _, operation := range []string{"renew-session-lock", "get-session-state", "set-session-state"} {
			s.wantStatus(400, argument, s.queue, operation, map[string]any{})
			s.wantStatus(400, argument, s.queue, operation, map[string]any{"session-id": int32(1)})
			s.wantStatus(410, string(condSessionLockLost), s.queue, operation, map[string]any{"session-id": "nobody's"})
		}
		s.wantStatus(400, outOfRange, s.queue, "get-message-sessions", map[string]any{"skip": int32(0), "top": int32(0)})
		s.wantStatus(400, outOfRange, s.queue, "get-message-sessions", map[string]any{"skip": int32(-1), "top": int32(1)})
		s.wantStatus(204, "", s.queue, "get-message-sessions", map[string]any{"skip": int32(0), "top": int32(1)})
	}},
}
