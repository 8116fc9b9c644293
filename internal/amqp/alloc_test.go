// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"testing"

	goamqp "github.com/Azure/go-amqp"
)

// kilobyte is a message of about 1 KiB as the Service Bus SDK sends it.
func kilobyte(t testing.TB) []byte {
	m := &goamqp.Message{
		Header:                &goamqp.MessageHeader{TTL: 30e9},
		Annotations:           goamqp.Annotations{"x-opt-partition-key": "p"},
		Properties:            &goamqp.MessageProperties{MessageID: "0123456789abcdef0123456789abcdef", Subject: ptr("created"), ContentType: ptr("application/json")},
		ApplicationProperties: map[string]any{"overdue-within": "30s", "tenant": "contoso", "attempt": int64(1)},
		Data:                  [][]byte{bytes.Repeat([]byte("x"), 830)},
	}
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hotTransfer() *Transfer {
	return &Transfer{
		Handle: 1, DeliveryID: 70_000, HasDeliveryID: true, DeliveryTag: []byte("0123456789abcdef"),
		HasMessageFormat: true, HasSettled: true,
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	message := kilobyte(t)
	transfer := AppendFrame(nil, 1, hotTransfer(), message)
	disposition := (&Disposition{Role: RoleReceiver, First: 1, Last: 9, Settled: true, State: Accepted{}}).Append(nil)
	flow := (&Flow{HasNextIncomingID: true, IncomingWindow: 5000, HasHandle: true, HasLinkCredit: true, LinkCredit: 9}).Append(nil)
	source := bytes.NewReader(transfer)
	frames := NewFrameReader(source, 65536)
	parsed, err := ParseMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 0, 4096)
	x, d, w := hotTransfer(), Disposition{}, Flow{}
	var decoder Decoder
	fail := func(name string, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, run := range map[string]func(){
		"decoding a transfer": func() {
			r := NewReader(transfer[FrameHeaderSize:])
			fail("transfer", x.Decode(&r))
		},
		"decoding a disposition": func() {
			r := NewReader(disposition)
			fail("disposition", d.Decode(&r))
		},
		"decoding a flow": func() {
			r := NewReader(flow)
			fail("flow", w.Decode(&r))
		},
		"the decoder": func() {
			for _, b := range [][]byte{transfer[FrameHeaderSize:], disposition, flow} {
				_, _, err := decoder.Decode(b)
				fail("decoder", err)
			}
		},
		"reading a frame": func() {
			source.Reset(transfer)
			_, err := frames.Next()
			fail("frame", err)
		},
		"appending a transfer":    func() { out = AppendFrame(out[:0], 1, x, message) },
		"appending a disposition": func() { out = AppendFrame(out[:0], 1, &d, nil) },
		"parsing a message": func() {
			_, err := ParseMessage(message)
			fail("message", err)
		},
		"appending a message": func() { out = parsed.Append(out[:0]) },
		"looking up a property": func() {
			if r, ok := MapLookup(parsed.ApplicationProperties, "tenant"); !ok || string(r.StringBytes()) != "contoso" {
				t.Error("property not found")
			}
		},
		"looking at a field": func() {
			if r, ok := ListField(parsed.Properties, PropertyMessageID); !ok || len(r.StringBytes()) != 32 {
				t.Error("message-id not found")
			}
		},
		"decoding a header": func() {
			_, err := DecodeHeader(parsed.Header)
			fail("header", err)
		},
		"walking a batch": func() {
			for _, err := range DataSections(parsed.Body) {
				fail("data section", err)
			}
		},
		"peeking at a descriptor": func() {
			r := NewReader(transfer[FrameHeaderSize:])
			if r.PeekDescriptor() != CodeTransfer {
				t.Error("no transfer")
			}
		},
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}

func BenchmarkMessage1KiB(b *testing.B) {
	message := kilobyte(b)
	b.Run("ParseMessage", func(b *testing.B) {
		b.SetBytes(int64(len(message)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseMessage(message); err != nil {
				b.Fatal(err)
			}
		}
	})
	// A broker needs two things of a message it takes in: where it is to go and for how long.
	b.Run("ParseMessage+fields", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m, err := ParseMessage(message)
			if err != nil {
				b.Fatal(err)
			}
			h, err := DecodeHeader(m.Header)
			id, ok := ListField(m.Properties, PropertyMessageID)
			within, found := MapLookup(m.ApplicationProperties, "overdue-within")
			if err != nil || !ok || !found || !h.HasTTL || len(id.StringBytes()) != 32 || len(within.StringBytes()) != 3 {
				b.Fatal("field missing")
			}
		}
	})
	b.Run("go-amqp", func(b *testing.B) {
		b.SetBytes(int64(len(message)))
		b.ReportAllocs()
		for b.Loop() {
			var m goamqp.Message
			if err := m.UnmarshalBinary(message); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTransfer(b *testing.B) {
	message := kilobyte(b)
	x := hotTransfer()
	frame := AppendFrame(nil, 1, x, message)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		for b.Loop() {
			if _, _, err := d.Decode(frame[FrameHeaderSize:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(frame)))
		out := make([]byte, 0, 4096)
		for b.Loop() {
			out = AppendFrame(out[:0], 1, x, message)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(frame)))
		source := bytes.NewReader(nil)
		fr := NewFrameReader(source, 65536)
		for b.Loop() {
			source.Reset(frame)
			if _, err := fr.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDisposition(b *testing.B) {
	body := (&Disposition{Role: RoleReceiver, First: 1, Last: 9, Settled: true, State: Accepted{}}).Append(nil)
	var d Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := d.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}
