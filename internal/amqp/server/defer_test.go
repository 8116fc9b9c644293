// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

func TestRefusedAttachCarriesTheReason(t *testing.T) {
	both(t, func(t *testing.T, sc *scene, dial func() *goamqp.Conn) {
		s := session(t, dial())
		for range 3 { // and the session lives on
			_, serr := s.NewSender(ctx, "refused", nil)
			_, rerr := s.NewReceiver(ctx, "refused", nil)
			for _, err := range []error{serr, rerr} {
				var e *goamqp.Error
				if !errors.As(err, &e) || e.Condition != goamqp.ErrCondNotFound || e.Description != "There is no refused." {
					t.Errorf("attach = %v, want amqp:not-found with the handler's words", err)
				}
			}
		}
		if sender, err := s.NewSender(ctx, "q", nil); err != nil {
			t.Errorf("NewSender after refusals: %v", err)
		} else if err := sender.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestDeferredAttach(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		s := session(t, sc.dial(nil, nil))
		start := time.Now()
		r, err := s.NewReceiver(ctx, "defer", nil)
		if err != nil {
			t.Fatalf("NewReceiver: %v", err)
		}
		sender, err := s.NewSender(ctx, "defer", nil)
		if err != nil {
			t.Fatalf("NewSender: %v", err)
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("attaching took %v, want 2s", got)
		}
		if err := sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil); err != nil {
			t.Fatalf("Send: %v", err)
		}
		if _, err := r.Receive(ctx, nil); err != nil {
			t.Fatalf("Receive: %v", err)
		}
		// A client that does not wait.
		short, cancel := context.WithTimeout(ctx, time.Second/2)
		defer cancel()
		if _, err := s.NewReceiver(short, "defer2", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("NewReceiver = %v, want its deadline exceeded", err)
		}
		time.Sleep(2 * time.Second)
		// go-amqp lets the link be until the session ends or the attach is answered: then it detaches.
		want := []string{"accepted defer: true"}
		if diff := cmp.Diff(want, sc.echo.notes()); diff != "" {
			t.Errorf("handler noted (-want +got):\n%s", diff)
		}
	})
}

func TestDeferredAttachGivenUpByThePeer(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, rawAttach(0, amqp.RoleReceiver, "defer"), nil)
		p.send(0, &amqp.Detach{Handle: 0, Closed: true}, nil)
		if a := expect[*amqp.Attach](p); a.Source != nil {
			t.Errorf("attach has source %v, want null", a.Source)
		}
		if d := expect[*amqp.Detach](p); !d.Closed || d.Error != nil {
			t.Errorf("detach = %+v, want closed without error", d)
		}
		time.Sleep(time.Second / 2)
		p.send(0, rawAttach(1, amqp.RoleSender, "defer"), nil)
		time.Sleep(time.Second / 2)
		p.send(0, &amqp.End{}, nil)
		expect[*amqp.End](p)
		synctest.Wait()
		if diff := cmp.Diff([]string{"gave up defer", "gave up defer"}, sc.echo.notes()); diff != "" {
			t.Errorf("handler noted (-want +got):\n%s", diff)
		}
	})
}

func TestCreditGrantedBeforeADeferredAttachIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		sc.echo.queue("defer").put(encode("x"))
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, rawAttach(0, amqp.RoleReceiver, "defer"), nil)
		p.send(0, linkFlow(0, 0, 1), nil)
		expect[*amqp.Attach](p)
		expect[*amqp.Transfer](p)
	})
}

func TestConnectionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		conn, err := goamqp.NewConn(ctx, sc.pipe(), &goamqp.ConnOptions{HostName: "forbidden", SASLType: goamqp.SASLTypeAnonymous()})
		if err == nil {
			_, err = conn.NewSession(ctx, nil)
		}
		var ce *goamqp.ConnError
		if !errors.As(err, &ce) || ce.RemoteErr == nil || ce.RemoteErr.Condition != goamqp.ErrCondUnauthorizedAccess {
			t.Errorf("connecting = %v, want amqp:unauthorized-access", err)
		}
		var e *amqp.Error
		if err := <-sc.errs; !errors.As(err, &e) || e.Description != "Not you." {
			t.Errorf("ServeConn = %v, want the handler's refusal", err)
		}
	})
}
