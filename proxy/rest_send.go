// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
)

// A request is the send of one HTTP request. Its handler's goroutine transmits when the send says
// so, and waits for the result.
type request struct {
	send
	ctx    context.Context // of what the send waits for, once it has begun
	goesOn chan struct{}   // one token: transmit
	result chan error      // one
}

func (p *Proxy) newRequest(entity string, settings Settings, ms []*message) *request {
	r := &request{goesOn: make(chan struct{}, 1), result: make(chan error, 1)}
	r.p, r.to, r.via, r.entity, r.settings, r.n, r.ms = p, r, endpointREST, entity, settings, len(ms), ms
	return r
}

// run makes the send. carry takes the messages to the broker, with the TTLs that are stamped on
// them by then, and returns when they are accepted.
func (r *request) run(ctx context.Context, carry func(context.Context) error) error {
	if err := r.wait(ctx); err != nil {
		r.step(refused, err)
		return <-r.result
	}
	// From here on the send runs to its end whether or not the app still waits: a caller
	// that hangs up between the work message and its companion must not part them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.p.cfg.SendTimeout)
	defer cancel()
	r.ctx = ctx
	if err := r.prepare(); err != nil {
		defer r.p.leave()
		r.step(refused, err)
		return <-r.result
	}
	r.begin()
	for {
		select {
		case <-r.goesOn:
			r.step(brokerSettled, carry(ctx))
		case <-ctx.Done():
			r.step(timeout, nil)
			return <-r.result
		case err := <-r.result:
			return err
		}
	}
}

func (r *request) transmit() { r.goesOn <- struct{}{} }

func (r *request) schedulingContext() context.Context { return r.ctx }

func (r *request) finished(err error) {
	r.count(err)
	r.result <- err
}
