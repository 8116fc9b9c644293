// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/binary"
	"errors"
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/address"
)

// Bounds of the requests that wait for one link to return their responses; beyond
// them, they are refused. Their number is more than one link may have unanswered.
const (
	maxPending      = 4 * managementCredit
	maxPendingBytes = 4 << 20
)

// A responder accepts requests, as clients may wait for that before they grant
// credit, then answers them, and returns the responses on its link. Requests are
// worked on one after the other, and only while the client takes responses, so
// that nobody can make the broker hold more than one.
type responder struct {
	conn     *conn
	ns       *Namespace // of conn when the link was attached
	link     *server.SourceLink
	node     address.Address
	path     string // of node
	detached func() // called at the end, may be nil

	wake chan struct{} // something in pending, credit, or the end

	mu      sync.Mutex
	pending []job
	bytes   int // of pending
	over    bool
}

// A job is a request with the way back to its delivery.
type job struct {
	delivery *server.Delivery
	from     *requests
	request  *request
}

func newResponder(c *conn, l *server.SourceLink, node address.Address) *responder {
	r := &responder{
		conn: c,
		ns:   c.ns,
		link: l,
		node: node.Folded(),
		path: node.Entity(),
		wake: make(chan struct{}, 1),
	}
	c.replies.add(r)
	c.b.links.Go(r.run)
	return r
}

// called reports whether a request that names replyTo means this link.
func (r *responder) called(replyTo string) bool {
	if replyTo == "" {
		return false
	}
	a := r.link.Attach()
	return a.Target != nil && a.Target.Address == replyTo || a.Name == replyTo
}

// accept takes over a job and accepts its request, or says why not.
func (r *responder) accept(j job) *amqp.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := len(j.delivery.Payload)
	if r.over || len(r.pending) == maxPending || r.bytes+size > maxPendingBytes && r.bytes > 0 {
		return amqp.Errorf(condServerBusy, "Too many requests wait for their responses to be read.")
	}
	j.from.link.Hold(1)
	j.from.settle(j.delivery, acceptedIn(j.request.txn))
	r.pending = append(r.pending, j)
	r.bytes += size
	r.signal()
	return nil
}

// Flow may bring the credit that a response waits for.
func (r *responder) Flow(f server.Flow) {
	r.signal()
	if f.Drain {
		r.link.Drained()
	}
}

// Disposition settles responses, where the client leaves that to the broker.
func (r *responder) Disposition(ds []*server.Outgone, st amqp.DeliveryState, settled bool) {
	if !settled {
		r.link.Settle(ds, st)
	}
}

// Detached ends run.
func (r *responder) Detached(*amqp.Error) {
	r.conn.replies.remove(r)
	if r.detached != nil {
		r.detached()
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.signal()
}

func (r *responder) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // said already
	}
}

// run answers until the link is detached.
func (r *responder) run() {
	for range r.wake {
		for r.link.Credit() > 0 {
			j, ok := r.next()
			if !ok {
				break
			}
			res, say := r.work(j)
			res = r.stored(res, j.request.operation)
			gone := say && !r.answer(res, j.request)
			if j.from.link.Hold(-1); gone {
				break
			}
		}
		if r.end() {
			return
		}
	}
}

// stored waits for the disk and returns what may leave then. Trouble with the disk keeps nobody from
// reading.
func (r *responder) stored(res response, operation string) response {
	refusal := r.conn.b.disk.Wait()
	if res.commit != nil {
		if err := res.commit(refusal == nil); err != nil && refusal == nil {
			refusal = refusalOf(err)
		}
	}
	isRead := r.node.Node == address.CBS || reading[operation] && res.commit == nil
	if refusal == nil || isRead || res.status >= statusBadRequest {
		return res
	}
	return r.tracked(refused(refusal))
}

// work answers one request, and says whether the client is to hear of it.
func (r *responder) work(j job) (res response, say bool) {
	defer func() {
		r.note(j.request, &res)
		res = r.tracked(res)
	}()
	f := r.fault(j.request)
	if f == nil {
		return j.from.answer(j.request), true
	}
	switch {
	case !f.pause(r.link):
		return response{}, false
	case f.Cut:
		r.conn.peer.Cut()
		return response{}, false
	case f.Detach:
		r.link.Detach(f.Error)
		return response{}, false
	case f.Error != nil:
		return refused(f.Error), !f.Silent
	}
	return j.from.answer(j.request), !f.Silent
}

// note notes a request and its outcome.
func (r *responder) note(req *request, res *response) {
	a := Activity{
		Operation: OnManagement,
		Namespace: r.ns,
		Path:      r.path,
		Detail:    req.operation,
	}
	if r.node.Node == address.CBS {
		a.Operation = OnToken
		a.Namespace = r.conn.access.namespaceBy(req.text())
		a.Path, _ = req.property("name")
	}
	if res.status >= statusBadRequest {
		a.Refusal = &amqp.Error{Condition: res.condition, Description: res.description}
	}
	r.conn.note(a)
}

// tracked ends the sentence of a failure as the service does.
func (r *responder) tracked(res response) response {
	if res.status >= statusBadRequest {
		res.description = r.ns.entities.tracked(&amqp.Error{Description: res.description}, r.node.Entity()).Description
	}
	return res
}

// fault returns what a request suffers, nil for nothing. A token names the
// namespace and the entity that it is for; its link has neither.
func (r *responder) fault(req *request) *Fault {
	if r.node.Node != address.CBS {
		return r.ns.faults.hit(OnManagement, r.node.Entity(), req.operation)
	}
	audience, _ := req.property("name")
	ns := r.conn.access.namespaceBy(req.text())
	return ns.faults.hit(OnToken, parseAddress(audience).Entity(), req.operation)
}

func (r *responder) next() (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || len(r.pending) == 0 {
		return job{}, false
	}
	j := r.pending[0]
	r.pending[0] = job{}
	r.pending = r.pending[1:]
	r.bytes -= len(j.delivery.Payload)
	return j, true
}

// payloads are the memory of responses.
var payloads = sync.Pool{New: func() any { return new([]byte) }}

// answer returns one response. It reports false when the link is gone. As in the service, one of
// $cbs names the request alone, and the client settles it unless it has asked for settled ones.
func (r *responder) answer(res response, req *request) bool {
	to, settled := req.replyTo, true
	if r.node.Node == address.CBS {
		to, settled = "", r.link.Attach().SndSettleMode == amqp.SndSettled
	}
	payload := payloads.Get().(*[]byte)
	*payload = res.append((*payload)[:0], to, req.messageID)
	sent := r.send(*payload, settled)
	if cap(*payload) <= maxPeekBuffer {
		payloads.Put(payload)
	}
	return sent
}

// send sends a payload. It reports false when the link is gone.
func (r *responder) send(payload []byte, settled bool) bool {
	tag := binary.LittleEndian.AppendUint32(nil, r.conn.sent.Add(1))
	for {
		_, err := r.link.SendOut(server.Outgoing{Tag: tag, Payload: payload, Settled: settled})
		switch {
		case err == nil:
			return true
		case !errors.Is(err, server.ErrNoCredit):
			return false
		}
		// Credit was taken back; wait for more. The wake-up spent here is not
		// missed: run looks at everything again afterwards.
		<-r.wake
		r.mu.Lock()
		over := r.over
		r.mu.Unlock()
		if over {
			r.signal()
			return false
		}
	}
}

// end reports whether the link is over, and drops what is left.
func (r *responder) end() bool {
	r.mu.Lock()
	over, left := r.over, r.pending
	if over {
		r.pending, r.bytes = nil, 0
	}
	r.mu.Unlock()
	if !over {
		return false
	}
	for _, j := range left {
		j.from.link.Hold(-1)
	}
	return true
}
