// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	wire "overdue/internal/amqp"
)

var sendSpecs = []spec{
	{name: "a message comes back as it was sent", check: func(s *scene) {
		text := func(v string) *string { return &v }
		sent := &azservicebus.Message{
			ApplicationProperties: map[string]any{"k": "v"},
			Body:                  []byte("body"),
			ContentType:           text("text/plain"),
			CorrelationID:         text("correlation"),
			MessageID:             text("id"),
			PartitionKey:          text("partition"),
			ReplyTo:               text("reply"),
			ReplyToSessionID:      text("reply session"),
			SessionID:             text("partition"), // the service wants it equal to the key
			Subject:               text("subject"),
			To:                    text("to"),
		}
		s.send(sent)
		got := s.one(s.receiver()).Message()
		got.TimeToLive = nil // the SDK reads none as zero
		if diff := cmp.Diff(sent, got); diff != "" {
			s.Errorf("received message (-sent +got):\n%s", diff)
		}
	}},
	{name: "a message without a message-id gets one", check: func(s *scene) {
		s.send(&azservicebus.Message{Body: []byte("nameless")})
		r := s.receiver()
		peeked, err := r.PeekMessages(s.ctx, 1, nil)
		s.must(err)
		if len(peeked) != 1 || peeked[0].MessageID == "" {
			s.Fatalf("peeked %d messages, want one with a message-id", len(peeked))
		}
		if got := s.one(r).MessageID; got != peeked[0].MessageID {
			s.Errorf("message-id = %q when received, %q when peeked; want the same", got, peeked[0].MessageID)
		}
	}},
	{name: "application properties keep their AMQP types", check: func(s *scene) {
		sent := map[string]any{
			"bool": true, "byte": int8(-1), "short": int16(-2), "int": int32(-3), "long": int64(-1 << 40),
			"ubyte": uint8(1), "ushort": uint16(2), "uint": uint32(3), "ulong": uint64(1 << 40),
			"float": float32(1.5), "double": 2.5, "string": "äöü", "binary": []byte{1, 2},
			"uuid":      amqp.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			"timestamp": time.UnixMilli(1_700_000_000_123).UTC(),
		}
		s.send(&azservicebus.Message{ApplicationProperties: sent})
		if diff := cmp.Diff(sent, s.one(s.receiver()).ApplicationProperties); diff != "" {
			s.Errorf("application properties (-sent +got):\n%s", diff)
		}
	}},
	{name: "bodies of every kind round trip", check: func(s *scene) {
		bodies := []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("one"), []byte("two")}},
			{Value: "text"},
			{Value: map[string]any{"k": int64(1)}},
			{Sequence: [][]any{{int64(1), "two"}, {true}}},
		}
		for _, b := range bodies {
			s.must(s.sender.SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{Body: b}, nil))
		}
		r := s.receiver()
		for i, want := range bodies {
			if diff := cmp.Diff(want, s.one(r).RawAMQPMessage.Body); diff != "" {
				s.Errorf("body %d (-sent +got):\n%s", i, diff)
			}
		}
	}},
	{name: "annotations of the sender are kept, those of the broker are its own", check: func(s *scene) {
		stale := time.Unix(1, 0)
		s.must(s.sender.SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{
			Body:                azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("x")}},
			DeliveryAnnotations: map[any]any{"x-hop": "kept"},
			Footer:              map[any]any{"x-foot": "kept"},
			MessageAnnotations: map[any]any{
				"x-mine":                "kept",
				"x-opt-sequence-number": int64(-7),
				"x-opt-locked-until":    stale,
				"x-opt-enqueued-time":   stale,
				"x-opt-message-state":   int32(2),
			},
		}, nil))
		m := s.one(s.receiver())
		raw := m.RawAMQPMessage
		for what, got := range map[string]any{
			"delivery annotation": raw.DeliveryAnnotations["x-hop"],
			"message annotation":  raw.MessageAnnotations["x-mine"],
			"footer":              raw.Footer["x-foot"],
		} {
			if got != "kept" {
				s.Errorf("%s of the sender = %v, want it kept", what, got)
			}
		}
		if state, said := raw.MessageAnnotations["x-opt-message-state"]; said {
			s.Errorf("state of an active message is said to be %v, want it unsaid", state)
		}
		if *m.SequenceNumber <= 0 || m.EnqueuedTime.Equal(stale) || m.LockedUntil.Equal(stale) || m.State != azservicebus.MessageStateActive {
			s.Errorf("sequence number %d, enqueued %v, locked until %v, state %d: some are the sender's",
				*m.SequenceNumber, m.EnqueuedTime, m.LockedUntil, m.State)
		}
	}},
	{name: "a footer may come before the body", check: func(s *scene) { // as the JavaScript SDK writes it
		const message = "\x00\x53\x78\xc1\x0f\x02\xa3\x06x-foot\xa1\x04kept" + "\x00\x53\x75\xa0\x01x"
		sender, err := s.raw.session().NewSender(s.ctx, s.queue, nil)
		s.must(err)
		// Inside a batch go-amqp lets messages be as they are.
		s.must(sender.Send(s.ctx, &amqp.Message{Format: wire.BatchMessageFormat, Data: [][]byte{[]byte(message)}}, nil))
		m := s.one(s.receiver())
		if got := m.RawAMQPMessage.Footer["x-foot"]; got != "kept" || string(m.Body) != "x" {
			s.Errorf("footer %v, body %q, want kept and x", got, m.Body)
		}
	}},
	{name: "a batch of 100 arrives whole and in order", check: func(s *scene) {
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		want := make([]string, 100)
		for i := range want {
			want[i] = fmt.Sprint("message ", i)
			s.must(batch.AddMessage(&azservicebus.Message{Body: []byte(want[i])}, nil))
		}
		s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		got := s.receive(s.receiver(), len(want))
		s.wantBodies("received", got, want...)
		for i := 1; i < len(got); i++ {
			if a, b := *got[i-1].SequenceNumber, *got[i].SequenceNumber; b <= a {
				s.Fatalf("sequence numbers %d, %d: not rising", a, b)
			}
		}
	}},
	{name: "a batch takes messages up to the size the link states", check: func(s *scene) {
		batch, err := s.sender.NewMessageBatch(s.ctx, nil)
		s.must(err)
		for {
			err := batch.AddMessage(&azservicebus.Message{Body: make([]byte, 10_000)}, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			}
			s.must(err)
		}
		if batch.NumMessages() < 10 {
			s.Fatalf("the batch took %d messages of 10 kB, want 10 at least", batch.NumMessages())
		}
		s.must(s.sender.SendMessageBatch(s.ctx, batch, nil))
		if got := len(s.peek(s.receiver())); got != int(batch.NumMessages()) {
			s.Errorf("%d messages arrived, want %d", got, batch.NumMessages())
		}
	}},
	{name: "a message that is too large is refused and the sender goes on", check: func(s *scene) {
		err := s.sender.SendMessage(s.soon(), &azservicebus.Message{Body: make([]byte, 1<<20)}, nil)
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			s.Errorf("SendMessage of 1 MiB = %v, want ErrMessageTooLarge", err)
		}
		s.text("small")
		s.wantBodies("peeked", s.peek(s.receiver()), "small")
	}},
	{name: "the largest message that can be sent can be peeked and received", check: func(s *scene) {
		size := 256 << 10
		for ; ; size-- {
			err := s.sender.SendMessage(s.soon(), &azservicebus.Message{Body: make([]byte, size)}, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				continue
			}
			s.must(err)
			break
		}
		s.text("behind it")
		r := s.receiver()
		peeked := s.peek(r)
		if len(peeked) != 2 || len(peeked[0].Body) != size {
			s.Fatalf("%d messages were peeked, want the large one and the one behind it", len(peeked))
		}
		if m := s.one(r); len(m.Body) != size {
			s.Errorf("a body of %d bytes was received, want %d", len(m.Body), size)
		}
	}},
	{name: "an unknown queue is refused at once", check: func(s *scene) {
		sender := s.senderTo("no-such-queue")
		err := sender.SendMessage(s.soon(), &azservicebus.Message{}, nil)
		s.wantCode("SendMessage", err, azservicebus.CodeNotFound)
		// As the JavaScript SDK's live tests want it, of ServiceBusClient with an entity that does not
		// exist.
		if err != nil && !regexp.MustCompile(`The messaging entity 'sb://[^/':]+/no-such-queue' could not be found\.`).MatchString(err.Error()) {
			s.Errorf("SendMessage = %q, want the sentence of the service", err)
		}
		r, err := s.client.NewReceiverForQueue("no-such-queue", nil)
		s.must(err)
		_, err = r.ReceiveMessages(s.soon(), 1, nil)
		s.wantCode("ReceiveMessages", err, azservicebus.CodeNotFound)
		_, err = r.PeekMessages(s.soon(), 1, nil)
		s.wantCode("PeekMessages", err, azservicebus.CodeNotFound)
	}},
	{name: "many senders at once lose nothing", check: func(s *scene) {
		// The SDK opens a link for every caller that finds none, and leaks all but
		// one of them with their goroutines. So the first send is alone.
		s.text("first")
		const senders, each = 16, 20
		var wg sync.WaitGroup
		errs := make(chan error, senders)
		for i := range senders {
			wg.Go(func() {
				for j := range each {
					body := fmt.Appendf(nil, "%d/%d", i, j)
					if err := s.sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			s.Error(err)
		}
		seen := make(map[string]bool)
		for _, m := range s.peek(s.receiver()) {
			seen[string(m.Body)] = true
		}
		if want := 1 + senders*each; len(seen) != want {
			s.Errorf("%d different messages arrived, want %d", len(seen), want)
		}
	}},
}
