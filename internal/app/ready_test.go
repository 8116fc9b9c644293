// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/lifecycle"
)

// pendingFor answers err until d has passed since now, then nil.
func pendingFor(d time.Duration, err error) func(context.Context) error {
	ready := time.Now().Add(d)
	return func(context.Context) error {
		if time.Now().Before(ready) {
			return err
		}
		return nil
	}
}

// The namespace answers some time before the monitor receives from it. A process that has just
// started must wait for both, and must not wait where one of them has failed.
func TestUntilReadyWaitsForWhatHasNotFailed(t *testing.T) {
	refused := errors.New("connection refused")
	for _, c := range []struct {
		name              string
		upstream, monitor error
		want              error
		after             time.Duration
	}{
		{"the monitor attaches after the namespace", errNotTried, notReceiving{"overdue-monitor"}, nil, 200 * time.Millisecond},
		{"the namespace refuses", refused, notReceiving{"overdue-monitor"}, refused, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Process{environment: &environment{admin: &adminport.Port{}, life: lifecycle.New(zap.NewNop(), time.Second)}}
				p.admin.Ready = []adminport.Check{
					{Name: "upstream", OK: pendingFor(100*time.Millisecond, c.upstream)},
					{Name: "monitor queue", OK: pendingFor(200*time.Millisecond, c.monitor)},
				}
				start := time.Now()
				if err := p.UntilReady(t.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("UntilReady = %v, want %v", err, c.want)
				}
				if got := time.Since(start); got < c.after || got > c.after+readyPoll {
					t.Errorf("it took %v, want %v", got, c.after)
				}
			})
		})
	}
}
