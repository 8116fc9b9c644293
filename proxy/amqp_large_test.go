// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
)

// A message as large as the namespace takes passes the endpoint both ways, monitored or not. The
// frame sizes of either side and the pieces in which bytes come make no difference.
func TestLargeMessagesPassTheEndpoint(t *testing.T) {
	frames := []struct {
		client, endpoint uint32 // bytes; go-amqp takes 512 for none
		pieces           int
	}{
		{513, 512, 1000}, {513, 65536, 1}, {65536, 512, 7}, {65536, 65536, 0},
	}
	if racetest.Enabled {
		frames = frames[:1] // one goroutine after the other handles them: there is little to race
	}
	for _, c := range frames {
		for _, kind := range []string{"unmonitored", "monitored", "monitored, with an id and a time to live to add"} {
			t.Run(fmt.Sprintf("client %d, endpoint %d, pieces %d, %s", c.client, c.endpoint, c.pieces, kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					settings := Settings{Monitored: kind != "unmonitored", Deadline: time.Hour, StampTTL: true, MaxMessageSize: 1 << 20}
					sc := setupAMQP(t, func(s *setting) {
						s.broker.Queues = []broker.QueueConfig{{Name: "large", MaxMessageSize: 1 << 20}}
						s.proxy.Settings = func(string) Settings { return settings }
						s.proxy.AMQP.MaxFrameSize = c.endpoint
					})
					sc.pieces = c.pieces
					m := &goamqp.Message{Header: &goamqp.MessageHeader{}, Properties: &goamqp.MessageProperties{}}
					if kind == "monitored" {
						m.Header.TTL, m.Properties.MessageID = 30*time.Minute, "its own"
					}
					m.Data = [][]byte{random(1<<20 - 200)} // room for what the endpoint adds
					if kind != "monitored, with an id and a time to live to add" {
						m.Data[0] = m.Data[0][:0]
						m.Data[0] = random(1<<20 - len(sc.encode(m)) - 3) // a length of four bytes in place of one
						if n := len(sc.encode(m)); n != 1<<20 {
							t.Fatalf("the message has %d bytes, want 1 MiB", n)
						}
					}
					session := sc.sessionOf(c.client)
					sender, err := session.NewSender(t.Context(), "large", nil)
					sc.must(err)
					sc.must(sender.Send(t.Context(), m, nil))
					receiver, err := session.NewReceiver(t.Context(), "large", nil)
					sc.must(err)
					got, err := receiver.Receive(t.Context(), nil)
					sc.must(err)
					if !bytes.Equal(got.GetData(), m.GetData()) {
						t.Errorf("%d bytes came back that differ, want the %d that were sent", len(got.GetData()), len(m.GetData()))
					}
					wantTTL, wantID := m.Header.TTL, m.Properties.MessageID
					if kind == "monitored, with an id and a time to live to add" {
						wantTTL = time.Hour
						if got.Properties.MessageID == nil {
							t.Error("it came without an id")
						}
						wantID = got.Properties.MessageID
					}
					if kind != "unmonitored" && (got.Header.TTL != wantTTL || got.Properties.MessageID != wantID) {
						t.Errorf("time to live %v, id %v, want %v and %v", got.Header.TTL, got.Properties.MessageID, wantTTL, wantID)
					}
					sc.must(receiver.AcceptMessage(t.Context(), got))
					want := 0.0
					if settings.Monitored {
						want = 1
					}
					if n := sc.sendsByAMQP("large", resultMonitored); n != want {
						t.Errorf("%v sends were monitored, want %v", n, want)
					}
				})
			})
		}
	}
}

// random is n bytes, the same each time.
func random(n int) []byte {
	source := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(source.Uint32())
	}
	return b
}
