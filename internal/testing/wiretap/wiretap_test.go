// SPDX-License-Identifier: Apache-2.0

package wiretap_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/wiretap"
)

// The tap has the bytes that a test sends and gets, in any pieces.
func TestTheTapRecordsBytesUnchanged(t *testing.T) {
	ns := brokertest.New(t)
	tap := wiretap.StartDialing(t, ns.Dial)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := goamqp.Dial(ctx, "amqp://"+tap.Addr, &goamqp.ConnOptions{MaxFrameSize: 513, SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(ctx, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	message := goamqp.NewMessage(bytes.Repeat([]byte("0123456789"), 200))
	if err := sender.Send(ctx, message, nil); err != nil {
		t.Fatal(err)
	}
	receiver, err := session.NewReceiver(ctx, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receiver.Receive(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.AcceptMessage(ctx, got); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(ctx); err != nil { // and so the settlement has gone by
		t.Fatal(err)
	}
	want, err := message.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	sent, received := tap.Sent("orders"), tap.Received("orders")
	if len(sent) != 1 || len(received) != 1 {
		t.Fatalf("%d sent and %d received, want one of each: %+v", len(sent), len(received), tap.Deliveries())
	}
	if diff := cmp.Diff(want, sent[0].Payload); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if received[0].Frames < 4 {
		t.Errorf("received in %d frames, want 5 or so", received[0].Frames)
	}
	for name, d := range map[string]wiretap.Delivery{"sent": sent[0], "received": received[0]} {
		if !d.Done || d.Settled || d.Outcome != "accepted" {
			t.Errorf("%s: done %v, settled %v, outcome %q; want true, false, accepted", name, d.Done, d.Settled, d.Outcome)
		}
	}
}

// A service fails when it is the first to end a connection, without a close frame, or when it says
// internal-error.
func TestFailuresAreThoseOfTheService(t *testing.T) {
	frame := func(p amqp.Performative) []byte { return amqp.AppendFrame(nil, 0, p, nil) }
	header := []byte("AMQP\x00\x01\x00\x00")
	closing := frame(&amqp.Close{})
	broken := &amqp.Error{Condition: amqp.ErrCondInternalError}
	for name, c := range map[string]struct {
		client, service []byte
		clientEnds      bool
		want            int
	}{
		"ends without a word":                 {header, header, false, 1},
		"ends within a frame":                 {header, slices.Concat(header, closing[:9]), false, 1},
		"closes":                              {header, slices.Concat(header, closing), false, 0},
		"closes with a refusal":               {header, slices.Concat(header, frame(&amqp.Close{Error: &amqp.Error{Condition: amqp.ErrCondNotFound}})), false, 0},
		"closes with internal error":          {header, slices.Concat(header, frame(&amqp.Close{Error: broken})), false, 1},
		"ends a session with internal error":  {header, slices.Concat(header, frame(&amqp.End{Error: broken}), closing), false, 1},
		"ends a link with internal error":     {header, slices.Concat(header, frame(&amqp.Detach{Error: broken})), true, 1},
		"says internal error twice":           {header, slices.Concat(header, frame(&amqp.End{Error: broken}), frame(&amqp.Close{Error: broken})), false, 1},
		"is said so by the client":            {slices.Concat(header, frame(&amqp.Close{Error: broken})), header, false, 0},
		"ends after the client ended":         {header, header, true, 0},
		"ends after the client's close frame": {slices.Concat(header, closing), header, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			tap := wiretap.StartDialing(t, func(context.Context) (net.Conn, error) { return near, nil })
			client, err := net.Dial("tcp", tap.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Write(c.client); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(far, make([]byte, len(c.client))); err != nil {
				t.Fatal(err)
			}
			if _, err := far.Write(c.service); err != nil {
				t.Fatal(err)
			}
			if c.clientEnds {
				if _, err := io.ReadFull(client, make([]byte, len(c.service))); err != nil { // which the tap has noted by then
					t.Fatal(err)
				}
				_ = client.Close()
				_, _ = io.Copy(io.Discard, far) // until the tap has seen it
			} else {
				_ = far.Close()
				_, _ = io.Copy(io.Discard, client)
			}
			if got := tap.Failures(); got != c.want {
				t.Errorf("Failures() = %d, want %d", got, c.want)
			}
		})
	}
}
