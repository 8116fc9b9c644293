// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

var plain = &amqp.Open{ContainerID: "peer", MaxFrameSize: 65536, ChannelMax: 10}

func TestEverySendGetsItsOutcomeInAnyOrder(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 10)
		results := sendAll(p.Context(), s, "0", "1", "2", "3", "4", "5", "6", "7")
		for i := range uint32(8) {
			tr, f := next[*amqp.Transfer](p)
			if tr.DeliveryID != i || string(f.payload) != fmt.Sprint(i) || tr.More || tr.Settled {
				t.Errorf("transfer %d = %s %q", i, amqp.Trace(tr, 1), f.payload)
			}
		}
		p.settle(7, 7, true, amqp.Released{})
		p.settle(5, 5, true, &amqp.Rejected{Error: amqp.Errorf("x:busy", "later")})
		p.settle(2, 4, false, amqp.Accepted{})
		if d, _ := next[*amqp.Disposition](p); d.Role != amqp.RoleSender || d.First != 2 || d.Last != 4 || !d.Settled {
			t.Errorf("answer to outcomes that are not settled = %+v, want that they are settled", d)
		}
		p.settle(6, 6, false, &amqp.Received{})
		p.settle(6, 6, true, nil)
		p.settle(1, 1, true, &amqp.Modified{})
		p.settle(1<<31, 0, true, amqp.Accepted{}) // a range around the end of the numbers
		p.settle(0, 100, true, &amqp.Rejected{})  // of which none is left
		want := []string{"", "modified", "", "", "", "x:busy", "without an outcome", "released"}
		for i, result := range results {
			select {
			case err := <-result:
				if (err == nil) != (want[i] == "") || err != nil && !strings.Contains(err.Error(), want[i]) {
					t.Errorf("Send %d = %v, want %q", i, err, want[i])
				}
			default:
				t.Errorf("Send %d waits", i)
			}
		}
		var rejected *amqp.Error
		_ = sendAll(p.Context(), s, "8")
		again := sendAll(p.Context(), s, "9")[0]
		p.settle(9, 9, true, &amqp.Rejected{Error: amqp.Errorf("x:full", "")})
		if err := <-again; !errors.As(err, &rejected) || rejected.Condition != "x:full" {
			t.Errorf("Send = %v, want the error of the peer", err)
		}
	})
}

func TestAMessageLargerThanAFrameGoesInSeveral(t *testing.T) {
	open := *plain
	open.MaxFrameSize = 512
	play(t, &open, func(p *peer, c *Conn) {
		go func() {
			p.begin(2) // frames
			p.attach(0)
			p.send(peerChannel, &amqp.Flow{IncomingWindow: 2, Handle: peerHandle, HasHandle: true, LinkCredit: 5, HasLinkCredit: true}, nil)
		}()
		s, err := c.Sender(p.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		long := strings.Repeat("0123456789", 200)
		results := sendAll(p.Context(), s, long, "short")
		var got strings.Builder
		frames := uint32(0)
		for more := true; more; {
			if n := len(p.frames); n > 2 {
				t.Fatalf("%d frames at once, want no more than the window", n)
			}
			tr, f := next[*amqp.Transfer](p)
			if size := len(amqp.AppendFrame(nil, 0, tr, f.payload)); size > 512 {
				t.Errorf("a frame of %d bytes", size)
			}
			got.Write(f.payload)
			more = tr.More
			if frames++; len(p.frames) == 0 {
				p.send(peerChannel, &amqp.Flow{IncomingWindow: 2, NextIncomingID: frames, HasNextIncomingID: true}, nil)
				synctest.Wait()
			}
		}
		if got.String() != long || frames < 5 {
			t.Errorf("%d bytes in %d frames, want %d in five", got.Len(), frames, len(long))
		}
		if tr, f := next[*amqp.Transfer](p); tr.DeliveryID != 1 || string(f.payload) != "short" {
			t.Errorf("next transfer = %+v, want the other message", tr)
		}
		p.settle(0, 1, true, amqp.Accepted{})
		for _, r := range results {
			if err := <-r; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTransfersWaitForCreditInTheirOrder(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 0)
		_ = sendAll(p.Context(), s, "a")
		short := sendAll(within(p.T, time.Second), s, "b")[0]
		_ = sendAll(p.Context(), s, "c")
		if err := <-short; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not written") {
			t.Errorf("Send without credit = %v, want that it is not written", err)
		}
		if got := p.kinds(); len(got) > 0 {
			t.Errorf("without credit the client sends %q", got)
		}
		p.credit(1, 0)
		if _, f := next[*amqp.Transfer](p); string(f.payload) != "a" {
			t.Errorf("first transfer %q, want a", f.payload)
		}
		p.credit(1, 1)
		if _, f := next[*amqp.Transfer](p); string(f.payload) != "c" {
			t.Errorf("second transfer %q, want c", f.payload)
		}
		p.credit(1, 1) // before the peer has seen the second
		_ = sendAll(p.Context(), s, "d")
		if got := p.kinds(); len(got) > 0 {
			t.Errorf("with credit that is used up the client sends %q", got)
		}
	})
}

func TestCreditIsDrainedAndFlowsAreAnswered(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		attachSender(p, c, 0, 10)
		p.send(peerChannel, &amqp.Flow{IncomingWindow: 1000, Handle: peerHandle, HasHandle: true, LinkCredit: 10, HasLinkCredit: true, Drain: true}, nil)
		if f, _ := next[*amqp.Flow](p); f.DeliveryCount != 10 || f.LinkCredit != 0 || !f.Drain || f.Handle != 0 {
			t.Errorf("answer to a drain = %+v, want the credit used up", f)
		}
		p.send(peerChannel, &amqp.Flow{IncomingWindow: 1000, Echo: true}, nil)
		if f, _ := next[*amqp.Flow](p); f.HasHandle || f.IncomingWindow == 0 {
			t.Errorf("answer to an echo = %+v, want the state of the session", f)
		}
	})
}

func TestAMessageThatIsTooLargeIsNotSent(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 4, 10)
		var refused *amqp.Error
		if err := s.Send(p.Context(), 0, []byte("12345")); !errors.As(err, &refused) || refused.Condition != amqp.ErrCondLinkMessageSizeExceeded {
			t.Errorf("Send of five bytes = %v, want that four are allowed", err)
		}
		synctest.Wait()
		if got := p.kinds(); len(got) > 0 || s.MaxMessageSize() != 4 {
			t.Errorf("the client sends %q; the most is %d, want 4", got, s.MaxMessageSize())
		}
	})
}

// The wait for an outcome, and the write, end with the context.
func TestASendToAStalledPeerEndsWithItsContext(t *testing.T) {
	for _, direction := range []pipenet.Direction{pipenet.ToListener, pipenet.ToDialer} {
		play(t, plain, func(p *peer, c *Conn) {
			s := attachSender(p, c, 0, 10)
			p.net.Stall(direction)
			began := time.Now()
			first := sendAll(within(p.T, 5*time.Second), s, "a")[0]
			second := sendAll(within(p.T, 3*time.Second), s, "b")[0]
			for i, result := range []chan error{second, first} {
				want := time.Duration(3+2*i) * time.Second
				if err := <-result; err == nil || time.Since(began) != want {
					t.Errorf("Send = %v after %v, want an error after %v", err, time.Since(began), want)
				}
			}
			p.net.Resume(direction)
		})
	}
}

func TestASendWithAnEndedContextWritesNothing(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 10)
		ctx, cancel := context.WithCancel(p.Context())
		cancel()
		if err := s.Send(ctx, 0, []byte("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("Send = %v, want that its context has ended", err)
		}
		synctest.Wait()
		if got := p.kinds(); len(got) > 0 {
			t.Errorf("the client sends %q", got)
		}
	})
}

// timeIsUp is a context in the moment between its deadline and its end.
type timeIsUp struct{ context.Context }

func (timeIsUp) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestACallerWhoseTimeIsUpEndsNoConnection(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 10)
		late := sendAll(timeIsUp{p.Context()}, s, "a")[0]
		again := sendAll(p.Context(), s, "b")[0]
		p.settle(0, 1, true, amqp.Accepted{})
		for _, result := range []chan error{late, again} {
			if err := <-result; err != nil {
				t.Errorf("Send = %v, want nil", err)
			}
		}
	})
}

// The connection lives on when a caller leaves; an outcome that comes for it then means nothing.
func TestALateOutcomeIsForNobodyElse(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 10)
		if err := <-sendAll(within(p.T, time.Second), s, "a")[0]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send = %v, want that time is up", err)
		}
		again := sendAll(p.Context(), s, "b")[0]
		p.settle(0, 0, true, &amqp.Rejected{})
		select {
		case err := <-again:
			t.Errorf("Send = %v for the outcome of another", err)
		default:
		}
		p.settle(1, 1, true, amqp.Accepted{})
		if err := <-again; err != nil {
			t.Errorf("Send = %v, want nil", err)
		}
	})
}

// While one goroutine writes, the transfers of the others wait for it, not for the peer.
func TestTransfersThatComeDuringAWriteLeaveTogether(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		s := attachSender(p, c, 0, 100)
		p.net.Stall(pipenet.ToListener)
		results := sendAll(p.Context(), s, strings.Split(strings.Repeat("x", 50), "")...)
		p.net.Resume(pipenet.ToListener)
		synctest.Wait()
		if got := p.kinds(); len(got) != 50 || slices.ContainsFunc(got, func(k string) bool { return !strings.Contains(k, "ransfer") }) {
			t.Errorf("%d frames %q, want 50 transfers", len(got), got)
		}
		p.settle(0, 49, true, amqp.Accepted{})
		for _, r := range results {
			if err := <-r; err != nil {
				t.Error(err)
			}
		}
	})
}
