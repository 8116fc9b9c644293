// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// soonest is how far ahead the cases schedule.
const soonest = 10 * time.Second

// now is the time by the clock of the namespace. It leaves no message behind.
func (s *scene) now() time.Time {
	s.Helper()
	s.text("what time is it?")
	r := s.receiverOf(s.client, destructive)
	m := s.one(r)
	s.must(r.Close(s.ctx))
	return *m.EnqueuedTime
}

// schedule schedules messages with these bodies and returns their numbers.
func (s *scene) schedule(at time.Time, bodies ...string) []int64 {
	s.Helper()
	ms := make([]*azservicebus.Message, len(bodies))
	for i, b := range bodies {
		ms[i] = &azservicebus.Message{Body: []byte(b)}
	}
	numbers, err := s.sender.ScheduleMessages(s.ctx, ms, at, nil)
	s.must(err)
	if len(numbers) != len(bodies) {
		s.Fatalf("ScheduleMessages returned %d numbers, want %d", len(numbers), len(bodies))
	}
	return numbers
}

var scheduleSpecs = []spec{
	{name: "a scheduled message is seen but not delivered before its time", check: func(s *scene) {
		at := s.now().Add(soonest)
		numbers := s.schedule(at, "x")
		s.wantDeliverable("before its time")
		m := s.peek(s.receiver())[0]
		if m.State != azservicebus.MessageStateScheduled || *m.SequenceNumber != numbers[0] {
			s.Errorf("peeked state %d number %d, want scheduled and %d", m.State, *m.SequenceNumber, numbers[0])
		}
		if m.ScheduledEnqueueTime == nil || m.ScheduledEnqueueTime.Sub(at).Abs() > time.Millisecond {
			s.Errorf("scheduled for %v, want %v", m.ScheduledEnqueueTime, at)
		}
		if !m.EnqueuedTime.Before(at) {
			s.Errorf("enqueued %v, want when it was sent", m.EnqueuedTime)
		}
	}},
	{name: "activation enqueues the message again", check: func(s *scene) {
		at := s.now().Add(soonest)
		numbers := s.schedule(at, "x")
		s.text("meanwhile")
		s.target.Wait(soonest + time.Second)
		ms := s.receive(s.receiver(), 2)
		s.wantBodies("received", ms, "meanwhile", "x")
		x := ms[1]
		if *x.SequenceNumber == numbers[0] || *x.SequenceNumber <= *ms[0].SequenceNumber {
			s.Errorf("sequence number %d, want a new one behind %d", *x.SequenceNumber, *ms[0].SequenceNumber)
		}
		if x.EnqueuedTime.Before(at.Truncate(time.Millisecond)) {
			s.Errorf("enqueued %v, want not before %v", x.EnqueuedTime, at)
		}
		if x.ScheduledEnqueueTime == nil {
			s.Error("scheduled enqueue time is gone")
		}
	}},
	{name: "what was scheduled is received as scheduled", check: func(s *scene) {
		start := s.now()
		past := start.Add(-time.Hour)
		s.send(&azservicebus.Message{Body: []byte("past"), ScheduledEnqueueTime: &past})
		s.schedule(start.Add(soonest), "x")
		s.target.Wait(soonest + time.Second)
		r := s.receiver()
		for _, want := range []azservicebus.MessageState{azservicebus.MessageStateActive, azservicebus.MessageStateScheduled} {
			m := s.one(r)
			if m.State != want {
				s.Errorf("%s: state = %d, want %d", m.Body, m.State, want)
			}
			s.must(r.DeferMessage(s.ctx, m, nil))
			if got := s.receiveDeferred(r, *m.SequenceNumber)[0].State; got != azservicebus.MessageStateDeferred {
				s.Errorf("%s, deferred: state = %d, want deferred", m.Body, got)
			}
		}
	}},
	{name: "a waiting receiver gets the message at its time", check: func(s *scene) {
		start := s.now()
		s.schedule(start.Add(soonest), "x")
		r := s.receiver()
		got := make(chan *azservicebus.ReceivedMessage, 1)
		go func() {
			ms, err := r.ReceiveMessages(s.ctx, 1, nil)
			if err != nil || len(ms) == 0 {
				s.Errorf("ReceiveMessages = %d messages, %v", len(ms), err)
				close(got)
				return
			}
			got <- ms[0]
		}()
		s.target.Wait(soonest)
		if m := <-got; m != nil && m.EnqueuedTime.Before(start.Add(soonest).Truncate(time.Millisecond)) {
			s.Errorf("received at %v, before its time", m.EnqueuedTime)
		}
	}},
	{name: "the annotation schedules like the operation", check: func(s *scene) {
		at := s.now().Add(soonest)
		s.send(&azservicebus.Message{Body: []byte("x"), ScheduledEnqueueTime: &at})
		s.wantDeliverable("before its time")
		if m := s.peek(s.receiver())[0]; m.State != azservicebus.MessageStateScheduled {
			s.Errorf("state = %d, want scheduled", m.State)
		}
		s.target.Wait(soonest + time.Second)
		s.wantDeliverable("at its time", "x")
	}},
	{name: "a time that has passed delivers at once", check: func(s *scene) {
		past := s.now().Add(-time.Hour)
		s.send(&azservicebus.Message{Body: []byte("a"), ScheduledEnqueueTime: &past})
		s.schedule(past, "b")
		s.wantDeliverable("at once", "a", "b")
	}},
	{name: "a cancelled message never comes", check: func(s *scene) {
		numbers := s.schedule(s.now().Add(soonest), "a", "b", "c")
		s.must(s.sender.CancelScheduledMessages(s.ctx, []int64{numbers[0], numbers[2]}, nil))
		s.wantBodies("left", s.peek(s.receiver()), "b")
		s.target.Wait(soonest + time.Second)
		s.wantDeliverable("at its time", "b")
	}},
	{name: "what is not scheduled cannot be cancelled", check: func(s *scene) {
		number := s.schedule(s.now().Add(soonest), "x")[0]
		s.wantCode("CancelScheduledMessages of a wrong number",
			s.sender.CancelScheduledMessages(s.soon(), []int64{number + 1000}, nil), azservicebus.CodeNotFound)
		s.target.Wait(soonest + time.Second)
		s.wantCode("CancelScheduledMessages after activation",
			s.sender.CancelScheduledMessages(s.soon(), []int64{number}, nil), azservicebus.CodeNotFound)
		s.wantDeliverable("afterwards", "x")
	}},
	{name: "messages scheduled in a batch come at their times", check: func(s *scene) {
		start := s.now()
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		for i, body := range []string{"second", "first"} {
			at := start.Add(time.Duration(2-i) * soonest)
			s.must(batch.AddMessage(&azservicebus.Message{Body: []byte(body), ScheduledEnqueueTime: &at}, nil))
		}
		s.must(batch.AddMessage(&azservicebus.Message{Body: []byte("at once")}, nil))
		s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		s.wantDeliverable("at once", "at once")
		s.target.Wait(soonest + time.Second)
		s.wantDeliverable("then", "at once", "first")
		s.target.Wait(soonest)
		s.wantDeliverable("at last", "at once", "first", "second")
	}},
}
