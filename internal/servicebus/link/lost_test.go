// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/servicebus/link"
)

// While the namespace is away, however many ask: one dial in 400 ms serves them all, and the first
// after it is back finds it.
func TestOneDialServesAllWhoNeedAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Tokens: &countingTokens{}, Dial: func(context.Context) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("refused")
		}})
		defer func() { _ = links.Close() }()
		var asking sync.WaitGroup
		for range 100 {
			asking.Go(func() {
				for range 40 {
					if _, err := links.Receiver(t.Context(), "orders"); !errors.Is(err, link.ErrNoConnection) || !link.Lost(err) {
						t.Errorf("Receiver = %v, want that there is no connection", err)
					}
					time.Sleep(250 * time.Millisecond)
				}
			})
		}
		asking.Wait()
		if n := dials.Load(); n < 15 || n > 26 {
			t.Errorf("%d dials in ten seconds, want one in 400 ms or a little more", n)
		}
	})
}

func TestLostIsNotRefused(t *testing.T) {
	remote := &amqp.Error{Condition: "com.microsoft:server-busy"}
	for _, tt := range []struct {
		err  error
		lost bool
	}{
		{context.DeadlineExceeded, true},
		{io.EOF, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, true},
		{&amqp.ConnError{}, true},
		{&amqp.ConnError{RemoteErr: remote}, true},
		{&amqp.SessionError{}, true},
		{&amqp.LinkError{}, true},
		{&amqp.LinkError{RemoteErr: remote}, false},
		{&amqp.SessionError{RemoteErr: remote}, false},
		{remote, false},
		{context.Canceled, false},
		{errors.New("odd"), false},
		{nil, false},
	} {
		if err := tt.err; link.Lost(err) != tt.lost || err != nil && link.Lost(fmt.Errorf("open: %w", err)) != tt.lost {
			t.Errorf("Lost(%v) = %v, want %v", err, !tt.lost, tt.lost)
		}
	}
}

func TestARefusalForWantOfARightIsRecognized(t *testing.T) {
	for want, errs := range map[bool][]error{
		true:  {&amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess}, fmt.Errorf("peek: %w", &link.StatusError{Code: 401})},
		false: {nil, errors.New("unauthorized"), &amqp.Error{Condition: amqp.ErrCondNotFound}, &link.StatusError{Code: 404}},
	} {
		for _, err := range errs {
			if got := link.Unauthorized(err); got != want {
				t.Errorf("Unauthorized(%v) = %v, want %v", err, got, want)
			}
		}
	}
}
