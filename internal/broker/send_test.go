// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	sdk "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
)

// encode encodes a message with go-amqp, which knows nothing of our codec.
func encode(t testing.TB, m *sdk.Message) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTransfersOfAnotherKindAreRefused(t *testing.T) {
	b, err := New(Config{Queues: []QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	q, _ := b.Queue("q")
	s := &sender{entity: b.Default().entities.find("q")}
	body := encode(t, sdk.NewMessage(nil))
	d := &server.Delivery{Payload: body, Format: 7}
	if _, err := s.storeAll(d); err == nil || err.Condition != amqp.ErrCondNotImplemented {
		t.Errorf("a transfer of another format: %v, want not-implemented", err)
	}
	if _, err := transactionOf(&amqp.Received{}); err == nil || err.Condition != amqp.ErrCondNotImplemented {
		t.Errorf("a transfer with the state received: %v, want not-implemented", err)
	}
	if n := q.Counts().Active; n != 0 {
		t.Errorf("%d messages were stored, want none", n)
	}
}
