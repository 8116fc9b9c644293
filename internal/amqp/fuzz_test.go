// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Skip looks at sizes, Value at contents: where Value succeeds, both have to end at the same byte.
func FuzzValue(f *testing.F) {
	for _, g := range goldenValues {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		read, skipped := NewReader(b), NewReader(b)
		v := read.Value()
		skipped.Skip()
		if read.Err() != nil {
			if v != nil || !errors.Is(read.Err(), ErrMalformed) {
				t.Fatalf("Value = %#v with error %v", v, read.Err())
			}
			return
		}
		if skipped.Err() != nil || skipped.Len() != read.Len() {
			t.Fatalf("Value left %d bytes, Skip %d, %v", read.Len(), skipped.Len(), skipped.Err())
		}
		encoded, err := AppendValue(nil, v)
		if err != nil {
			t.Fatalf("AppendValue(nil, %#v): %v", v, err)
		}
		again := NewReader(encoded)
		if diff := cmp.Diff(v, again.Value(), equalValues); diff != "" || again.Err() != nil || !again.Done() {
			t.Fatalf("decoded again: %v, %d bytes left (-want +got):\n%s", again.Err(), again.Len(), diff)
		}
	})
}

// A decoded performative is encoded without loss, and encoded the same way ever after.
func FuzzPerformative(f *testing.F) {
	for _, p := range fullPerformatives() {
		f.Add(p.Append(nil))
	}
	for _, g := range goldenPerformatives {
		f.Add(append(unhex(f, g.hex), "payload"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, payload, err := DecodePerformative(b)
		if err != nil {
			if p != nil || !errors.Is(err, ErrMalformed) {
				t.Fatalf("DecodePerformative = %v with error %v", p, err)
			}
			return
		}
		if !bytes.HasSuffix(b, payload) {
			t.Fatalf("payload %x is no end of %x", payload, b)
		}
		first := p.Append(nil)
		q, rest, err := DecodePerformative(append(first, "payload"...))
		if err != nil || string(rest) != "payload" {
			t.Fatalf("%s: decoding %x again: %q left, %v", Trace(p, 0), first, rest, err)
		}
		if second := q.Append(nil); !bytes.Equal(first, second) {
			t.Fatalf("%s: appended %x, then %x", Trace(p, 0), first, second)
		}
		if line := Trace(p, len(payload)); line == "" || bytes.ContainsAny([]byte(line), "\r\n") {
			t.Fatalf("Trace = %q", line)
		}
	})
}

func FuzzFrameReader(f *testing.F) {
	for _, p := range fullPerformatives() {
		f.Add(AppendFrame(AppendFrame(nil, 1, p, []byte("payload")), 2, nil, nil), uint32(512))
	}
	f.Add(unhex(f, "00000014 04 01 0001 0000000000000000 00000000"), uint32(512))
	f.Fuzz(func(t *testing.T, b []byte, limit uint32) {
		whole, piecemeal := NewFrameReader(bytes.NewReader(b), limit), NewFrameReader(&trickle{b}, limit)
		passed := 0
		for {
			want, wantErr := whole.Next()
			got, err := piecemeal.Next()
			if (err == nil) != (wantErr == nil) || cmp.Diff(want, got) != "" {
				t.Fatalf("at once: %+v, %v; piece by piece: %+v, %v", want, wantErr, got, err)
			}
			if err != nil {
				if !errors.Is(err, ErrFraming) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("unexpected error %v", err)
				}
				break
			}
			if passed += FrameHeaderSize + len(got.Body); passed > len(b) {
				t.Fatalf("%d bytes of frames in %d bytes", passed, len(b))
			}
		}
		if len(whole.buf) > max(2*len(b), fastBuffer) {
			t.Fatalf("buffer of %d bytes for %d bytes", len(whole.buf), len(b))
		}
	})
}

// trickle gives three bytes at a time.
type trickle struct{ b []byte }

func (s *trickle) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(3, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

func FuzzMessage(f *testing.F) {
	full, err := fullMessage().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add(kilobyte(f))
	f.Add(AppendData(AppendData(nil, full), full))
	f.Add(AppendValueSection(Header{}.Append(nil), rawMap))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("ParseMessage: %v", err)
			}
			return
		}
		again := m.Append(nil)
		if plainDescriptors(b) && !bytes.Equal(again, b) {
			t.Fatalf("appended\n %x, parsed from\n %x", again, b)
		}
		n, err := ParseMessage(again)
		if diff := cmp.Diff(m, n); diff != "" && plainDescriptors(m.Body) || err != nil {
			t.Fatalf("parsed again: %v (-want +got):\n%s", err, diff)
		}
		if h, err := DecodeHeader(m.Header); err == nil {
			if got, err := DecodeHeader(h.Raw()); err != nil || got != h {
				t.Fatalf("header %+v came back as %+v, %v", h, got, err)
			}
		}
		if p, err := DecodeProperties(m.Properties); err == nil {
			if got, err := DecodeProperties(p.Raw()); err != nil || cmp.Diff(p, got) != "" {
				t.Fatalf("properties %+v came back as %+v, %v", p, got, err)
			}
		}
		MapLookup(m.ApplicationProperties, "overdue-within")
		for _, err := range DataSections(m.Body) {
			if err != nil && m.Body[2] == byte(CodeData) && plainDescriptors(m.Body) {
				t.Fatalf("data section of a parsed body: %v", err)
			}
		}
	})
}

// plainDescriptors reports whether all sections have their descriptors the way we write them, in
// our order.
func plainDescriptors(b []byte) bool {
	last := byte(0)
	for r := NewReader(b); !r.Done(); {
		if next := r.Rest(); len(next) < 3 || next[0] != codeDescribed || next[1] != codeSmallUlong || next[2] < last {
			return false
		} else {
			last = next[2]
		}
		r.Skip()
	}
	return true
}

// go-amqp and we agree about every message that both of us can read.
func FuzzMessageAgainstGoAMQP(f *testing.F) {
	full, err := fullMessage().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add(kilobyte(f))
	// A map whose stated size takes in the data section behind it: go-amqp goes by the count.
	f.Add(append(unhex(f, "005374 d1 00000029 00000002 a10e"), "00000000000000\xa1\x03000\x00\x53\x75\xa0\x0b00000000000"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		theirs, err := unmarshal(b)
		if err != nil {
			return
		}
		ours, err := ParseMessage(b)
		if err != nil {
			return // they take sections in any order, twice, and of other types
		}
		if h, err := DecodeHeader(ours.Header); err == nil && theirs.Header != nil {
			if h.Durable != theirs.Header.Durable || h.DeliveryCount != theirs.Header.DeliveryCount {
				t.Fatalf("header: ours %+v, theirs %+v", h, theirs.Header)
			}
		}
		if p, err := DecodeProperties(ours.Properties); err == nil && theirs.Properties != nil {
			if diff := cmp.Diff(p.GroupID, theirs.Properties.GroupID); diff != "" {
				t.Fatalf("group-id (-ours +theirs):\n%s", diff)
			}
			if id, ok := theirs.Properties.MessageID.(string); ok && p.MessageID != id {
				t.Fatalf("message-id: ours %v, theirs %q", p.MessageID, id)
			}
		}
		var data [][]byte
		for d, err := range DataSections(ours.Body) {
			if err != nil {
				return
			}
			data = append(data, d)
		}
		if diff := cmp.Diff(data, theirs.Data); diff != "" && len(data)+len(theirs.Data) > 0 {
			t.Fatalf("data (-ours +theirs):\n%s", diff)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(Answer{To: "r", CorrelationID: AppendString(nil, "overdue-3"), Status: 202, Description: "Accepted"}.Append(nil))
	f.Add(Answer{Status: 401, Description: "no", Condition: "com.microsoft:auth-failed"}.Append(nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := ParseMessage(payload)
		if err != nil {
			return
		}
		if a := ReadAnswer(&m); a.Status < 0 || a.Status > 999 {
			t.Fatalf("status %d", a.Status)
		}
	})
}
