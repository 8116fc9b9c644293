// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"overdue/internal/amqp"

	goamqp "github.com/Azure/go-amqp"
)

// stream is a connection that gives what it holds, in chunks.
type stream struct {
	net.Conn
	left  []byte
	chunk int
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left[:min(s.chunk, len(s.left))])
	s.left = s.left[n:]
	return n, nil
}

// readBare is what the client gets of b, which comes in chunks of that size.
func readBare(t testing.TB, b []byte, chunk int) []byte {
	t.Helper()
	out, err := io.ReadAll(newBareConn(&stream{left: b, chunk: chunk}))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// incoming is what a broker sends over links of these names: one message of several frames over
// each.
func incoming(message []byte, names ...string) []byte {
	var b []byte
	b = append(b, amqp.ProtoAMQP[:]...)
	for i, name := range names {
		handle := uint32(i)
		b = amqp.AppendFrame(b, 1, &amqp.Attach{Name: name, Handle: handle, Role: amqp.RoleSender, Source: &amqp.Source{}}, nil)
		b = amqp.AppendFrame(b, 1, nil, nil) // a keep-alive
		for part := range 3 {
			n := len(message) / 3
			payload := message[part*n:]
			if part < 2 {
				payload = payload[:n]
			}
			b = amqp.AppendFrame(b, 1, &amqp.Transfer{Handle: handle, HasDeliveryID: part == 0, DeliveryTag: []byte{1}, More: part < 2}, payload)
		}
		b = amqp.AppendFrame(b, 1, &amqp.Detach{Handle: handle, Closed: true}, nil)
	}
	return b
}

func TestOtherLinksAreLeftAlone(t *testing.T) {
	b := incoming(bytes.Repeat([]byte("anything"), 1000), "reply", "companions")
	for _, chunk := range []int{1, 7, 4096, 1 << 20} {
		if got := readBare(t, b, chunk); !bytes.Equal(got, b) {
			t.Errorf("in chunks of %d: %d bytes of %d came, or others", chunk, len(got), len(b))
		}
	}
}

// whole is a message with everything that go-amqp cannot decode, and what the monitor looks at.
func whole(t testing.TB, annotations ...amqp.Pair) []byte {
	t.Helper()
	value := func(v any) amqp.Raw {
		raw, err := amqp.AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	odd := amqp.Pair{Key: "odd", Value: amqp.Decimal128{1}}
	m := amqp.Message{
		Header: amqp.Header{DeliveryCount: 3}.Raw(),
		MessageAnnotations: value(append(amqp.Map{
			{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(7)},
			{Key: amqp.Symbol("x-opt-enqueued-time"), Value: amqp.TimestampOf(time.Unix(1, 0))},
			{Key: amqp.Symbol("x-odd"), Value: amqp.Char('A')},
		}, annotations...)),
		ApplicationProperties: value(amqp.Map{odd, {Key: "overdue-within", Value: "5s"}, {Key: "overdue-deadline", Value: amqp.Decimal32{1}}}),
		Body:                  amqp.AppendData(nil, make([]byte, 100_000)),
	}
	return m.Append(nil)
}

func TestBareMessageIsWhatTheMonitorNeeds(t *testing.T) {
	b := incoming(whole(t), barePrefix+"a", barePrefix+"b")
	first := readBare(t, b, 1<<20)
	if len(first) > 2000 {
		t.Errorf("%d bytes came of %d, want no bodies", len(first), len(b))
	}
	for _, chunk := range []int{1, 100, 5000} {
		if got := readBare(t, b, chunk); !bytes.Equal(got, first) {
			t.Errorf("in chunks of %d other bytes come than in one", chunk)
		}
	}
	var m goamqp.Message
	if err := m.UnmarshalBinary(bare(whole(t))); err != nil {
		t.Fatalf("go-amqp: %v", err)
	}
	if m.Header.DeliveryCount != 3 || m.Annotations["x-opt-sequence-number"] != int64(7) || len(m.Annotations) != 2 ||
		m.ApplicationProperties["overdue-within"] != "5s" || len(m.ApplicationProperties) != 1 {
		t.Errorf("go-amqp reads %+v, %v, %v", m.Header, m.Annotations, m.ApplicationProperties)
	}
}

// The number stands in front, so it comes through whatever follows.
func TestBareMessageThatCannotBeRead(t *testing.T) {
	full := whole(t)
	for cut := range 300 {
		var m goamqp.Message
		if err := m.UnmarshalBinary(bare(full[:cut])); err != nil {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func FuzzBareConn(f *testing.F) {
	f.Add(incoming(whole(f), barePrefix, "other"), 100)
	f.Add([]byte("AMQP\x00\x01\x00\x00HTTP/1.1 400 Bad Request"), 3)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		if chunk <= 0 || chunk < len(b)/1000 {
			chunk = 1 + len(b)/1000
		}
		got := readBare(t, b, chunk)
		if other := readBare(t, b, len(b)+1); len(b) < 10_000 && !bytes.HasPrefix(other, got) && !bytes.HasPrefix(got, other) {
			t.Errorf("in chunks of %d other bytes come than in one", chunk)
		}
	})
}
