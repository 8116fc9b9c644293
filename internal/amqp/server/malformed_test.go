// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"overdue/internal/amqp"
)

func TestHeaderNegotiation(t *testing.T) {
	tests := []struct {
		name, sent string
		want       string // prefix of what comes before the end
	}{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "AMQP\x03\x01\x00\x00"},
		{"AMQP 0-9-1", "AMQP\x00\x00\x09\x01", "AMQP\x03\x01\x00\x00"},
		{"AMQP 2", "AMQP\x00\x02\x00\x00", "AMQP\x03\x01\x00\x00"},
		{"TLS layer", "AMQP\x02\x01\x00\x00", "AMQP\x03\x01\x00\x00"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "AMQP\x03\x01\x00\x00"},
		{"nothing", "", ""},
		{"half a header", "AMQ", ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				nc := sc.pipe()
				go func() {
					_, _ = io.WriteString(nc, tc.sent) // the server may refuse before the end
				}()
				start := time.Now()
				got, err := io.ReadAll(nc)
				if err != nil {
					t.Fatalf("reading: %v", err)
				}
				if string(got) != tc.want {
					t.Errorf("server said % x, want % x", got, tc.want)
				}
				if took := time.Since(start); took > 35*time.Second {
					t.Errorf("server hung up after %v, want 35s at most", took)
				}
				if err := <-sc.errs; err == nil {
					t.Errorf("ServeConn = nil, want an error")
				}
			})
		})
	}
}

func TestSASL(t *testing.T) {
	tests := []struct {
		mechanism amqp.Symbol
		code      uint8
	}{{"MSSBCBS", 0}, {"PLAIN", 0}, {"ANONYMOUS", 0}, {"EXTERNAL", 0}, {"SCRAM-SHA-1", 1}}
	for _, tc := range tests {
		t.Run(string(tc.mechanism), func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				nc := sc.pipe()
				b := append([]byte(nil), amqp.ProtoSASL[:]...)
				b = amqp.AppendSASLFrame(b, &amqp.SASLInit{Mechanism: tc.mechanism, InitialResponse: []byte("\x00a\x00b")})
				b = append(b, amqp.ProtoAMQP[:]...)
				b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "c", MaxFrameSize: 512, ChannelMax: 65535}, nil)
				go func() {
					_, _ = nc.Write(b)
				}()
				fr := amqp.NewFrameReader(nc, 1<<16)
				if proto, err := fr.ReadProto(); err != nil || proto != amqp.ProtoSASL {
					t.Fatalf("header % x, %v, want SASL", proto, err)
				}
				read := func() amqp.Performative {
					f, err := fr.Next()
					if err != nil {
						t.Fatalf("Next: %v", err)
					}
					p, _, err := amqp.DecodePerformative(f.Body)
					if err != nil {
						t.Fatalf("Decode: %v", err)
					}
					return p
				}
				if m, ok := read().(*amqp.SASLMechanisms); !ok || fmt.Sprint(m.Mechanisms) != "[MSSBCBS PLAIN ANONYMOUS EXTERNAL]" {
					t.Errorf("mechanisms = %v", m)
				}
				o, ok := read().(*amqp.SASLOutcome)
				if !ok || o.Code != tc.code {
					t.Fatalf("outcome = %+v, want code %d", o, tc.code)
				}
				if tc.code != 0 {
					if _, err := fr.Next(); !errors.Is(err, io.EOF) {
						t.Errorf("after a refusal: %v, want EOF", err)
					}
					return
				}
				if string(o.AdditionalData) != "Welcome!" {
					t.Errorf("additional-data = %q, want Welcome!", o.AdditionalData)
				}
				if proto, err := fr.ReadProto(); err != nil || proto != amqp.ProtoAMQP {
					t.Fatalf("header % x, %v, want AMQP", proto, err)
				}
				if open, ok := read().(*amqp.Open); !ok || open.ChannelMax != 4999 || open.IdleTimeout != 240000 || open.MaxFrameSize != 512 {
					t.Errorf("open = %+v", open)
				}
			})
		})
	}
}

func TestMalformedInputIsRefusedWithTheConditionOfTheSpec(t *testing.T) {
	frame := func(ch uint16, p amqp.Performative, payload string) []byte {
		return amqp.AppendFrame(nil, ch, p, []byte(payload))
	}
	begin := frame(0, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}, "")
	attach := frame(0, rawAttach(0, amqp.RoleSender, "hold"), "")
	receive := frame(0, rawAttach(0, amqp.RoleReceiver, "q"), "")
	join := func(bs ...[]byte) []byte { return bytes.Join(bs, nil) }
	noTag := message(0, 0)
	noTag.DeliveryTag = nil
	noID := message(0, 0)
	noID.HasDeliveryID = false
	first := message(0, 0)
	first.More = true
	resume := message(0, 0)
	resume.Resume = true
	tests := []struct {
		name string
		sent []byte
		want string // kind of frame and condition of the refusal
	}{
		{"frame larger than max-frame-size", []byte{0x7f, 0, 0, 0, 2, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"frame smaller than its header", []byte{0, 0, 0, 4, 2, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"data offset beyond the frame", []byte{0, 0, 0, 8, 9, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"data offset within the header", []byte{0, 0, 0, 8, 1, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"SASL frame after open", []byte{0, 0, 0, 8, 2, 1, 0, 0}, "close amqp:connection:framing-error"},
		{"no performative", []byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}, "close amqp:decode-error"},
		{"unknown performative", []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45}, "close amqp:decode-error"},
		{"list longer than the frame", []byte{0, 0, 0, 13, 2, 0, 0, 0, 0, 0x53, 0x11, 0xc0, 0xff}, "close amqp:decode-error"},
		{"begin without mandatory fields", []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x11, 0x45}, "close amqp:decode-error"},
		{"second open", frame(0, &amqp.Open{ContainerID: "x"}, ""), "close amqp:not-allowed"},
		{"channel above channel-max", frame(5000, &amqp.Begin{}, ""), "close amqp:connection:framing-error"},
		{"second begin on a channel", join(begin, begin), "close amqp:not-allowed"},
		{"answer to a begin that was never sent", frame(0, &amqp.Begin{HasRemoteChannel: true}, ""), "close amqp:not-allowed"},
		{"flow without a session", frame(7, &amqp.Flow{}, ""), "close amqp:not-allowed"},
		{"end without a session", frame(7, &amqp.End{}, ""), "close amqp:not-allowed"},
		{"handle above handle-max", join(begin, frame(0, rawAttach(1<<31, amqp.RoleSender, "q"), "")), "end amqp:resource-limit-exceeded"},
		{"handle in use", join(begin, attach, frame(0, rawAttach(0, amqp.RoleSender, "other"), "")), "end amqp:session:handle-in-use"},
		{"flow of an unattached handle", join(begin, frame(0, linkFlow(3, 0, 1), "")), "end amqp:session:unattached-handle"},
		{"transfer on an unattached handle", join(begin, frame(0, message(3, 0), "x")), "end amqp:session:unattached-handle"},
		{"detach of an unattached handle", join(begin, frame(0, &amqp.Detach{Handle: 3}, "")), "end amqp:session:unattached-handle"},
		{"transfer without delivery-id", join(begin, attach, frame(0, noID, "x")), "detach amqp:invalid-field"},
		{"transfer without delivery-tag", join(begin, attach, frame(0, noTag, "x")), "detach amqp:invalid-field"},
		{"transfer that resumes", join(begin, attach, frame(0, resume, "x")), "detach amqp:not-implemented"},
		{"transfer from a receiver", join(begin, receive, frame(0, message(0, 0), "x")), "detach amqp:not-allowed"},
		{"delivery within a delivery", join(begin, attach, frame(0, first, "x"), frame(0, message(0, 1), "x")), "detach amqp:not-allowed"},
		{"delivery-id that falls far", join(begin, attach, frame(0, message(0, 10_000), "x"), frame(0, message(0, 5_000), "x")), "end amqp:invalid-field"},
		{"transfer without credit", join(begin, frame(0, rawAttach(0, amqp.RoleSender, "hold two"), ""), frame(0, message(0, 0), "x"), frame(0, message(0, 1), "x"), frame(0, message(0, 2), "x")), "detach amqp:link:transfer-limit-exceeded"},
		{"no target", join(begin, frame(0, &amqp.Attach{Name: "n", Role: amqp.RoleSender}, "")), "detach amqp:invalid-field"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				p := sc.raw()
				p.open()
				p.write(tc.sent)
				for {
					var got string
					var e *amqp.Error
					switch f := p.next().(type) {
					case *amqp.Begin, *amqp.Attach, *amqp.Flow:
						continue
					case *amqp.Detach:
						got, e = "detach", f.Error
					case *amqp.End:
						got, e = "end", f.Error
					case *amqp.Close:
						got, e = "close", f.Error
					default:
						t.Fatalf("got %T (%v), want %s", f, p.err, tc.want)
					}
					if got += " " + cond(e); got != tc.want {
						t.Fatalf("got %s (%v), want %s", got, e, tc.want)
					}
					if len(e.Description) < 10 {
						t.Errorf("description = %q, want a sentence", e.Description)
					}
					return
				}
			}, func(c *Config) { c.IncomingWindow = 100 })
		})
	}
}

func TestBadOpensAreAnsweredByOpenAndClose(t *testing.T) {
	tests := []struct {
		name string
		sent []byte
		want amqp.Symbol
	}{
		{"max-frame-size too small", amqp.AppendFrame(nil, 0, &amqp.Open{ContainerID: "x", MaxFrameSize: 100}, nil), amqp.ErrCondInvalidField},
		{"idle-time-out too short", amqp.AppendFrame(nil, 0, &amqp.Open{ContainerID: "x", IdleTimeout: 1}, nil), amqp.ErrCondNotAllowed},
		{"begin in place of open", amqp.AppendFrame(nil, 0, &amqp.Begin{}, nil), amqp.ErrCondNotAllowed},
		{"frame too large", []byte{0x7f, 0, 0, 0, 2, 0, 0, 0}, amqp.ErrCondConnectionFramingError},
		{"empty frame", []byte{0, 0, 0, 8, 2, 0, 0, 0}, amqp.ErrCondDecodeError},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				p := sc.raw()
				p.listen()
				p.write(amqp.ProtoAMQP[:])
				p.write(tc.sent)
				expect[*amqp.Open](p)
				if c := expect[*amqp.Close](p); cond(c.Error) != string(tc.want) {
					t.Errorf("close = %v, want %s", c.Error, tc.want)
				}
			})
		})
	}
}
