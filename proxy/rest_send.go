// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"
)

// A request is the send of one HTTP request. Its handler's goroutine transmits when the send
// steps to it, and waits for the result.
type request struct {
	send
	ctx    context.Context // of the send, once it has begun
	goesOn chan struct{}   // a token: transmit
	result chan error      // takes the one result
}

func (p *Proxy) newRequest(entity string, settings Settings, ms []*message) *request {
	r := &request{goesOn: make(chan struct{}, 1), result: make(chan error, 1)}
	via := endpointREST
	if p.metrics.isCanary(entity) {
		via = endpointCanary
	}
	r.p, r.to, r.via, r.entity, r.settings, r.n, r.ms, r.began = p, r, via, entity, settings, len(ms), ms, time.Now()
	r.trace = r.traced()
	return r
}

// run runs the send. carry sends the messages, with their stamped TTLs, and returns when the
// broker has accepted them.
func (r *request) run(ctx context.Context, carry func(context.Context) error) error {
	if err := r.wait(ctx); err != nil {
		r.step(refused, err)
		return <-r.result
	}
	// From here on the send runs to its end even if the app hangs up: leaving between the work
	// message and its companion must not separate them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.p.cfg.SendTimeout)
	defer cancel()
	r.ctx = ctx
	if err := r.prepare(); err != nil {
		defer r.p.sends.leave()
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
	if err != nil { // the answer is logged by refuse, which does not know the message
		r.p.cfg.Log.Debug("send failed", r.failure(err)...)
	}
	r.result <- err
}
