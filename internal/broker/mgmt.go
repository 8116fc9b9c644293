// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// management answers the requests on the $management node of one entity, or of
// its dead-letter queue.
type management struct {
	ns   *Namespace
	node address.Address
	txns *transactions
}

// operations are what $management can do, one file each.
var operations = map[string]func(management, *Entity, *queue.Queue, *arguments) response{
	"com.microsoft:peek-message":               management.peek,
	"com.microsoft:schedule-message":           management.schedule,
	"com.microsoft:cancel-scheduled-message":   management.cancelScheduled,
	"com.microsoft:renew-lock":                 management.renewLock,
	"com.microsoft:update-disposition":         management.updateDisposition,
	"com.microsoft:receive-by-sequence-number": management.receiveDeferred,
	"com.microsoft:batch-delete-messages":      management.batchDelete,
	"com.microsoft:renew-session-lock":         management.renewSessionLock,
	"com.microsoft:get-session-state":          management.sessionState,
	"com.microsoft:set-session-state":          management.setSessionState,
	"com.microsoft:get-message-sessions":       management.sessions,
	"com.microsoft:add-rule":                   management.addRule,
	"com.microsoft:remove-rule":                management.removeRule,
	"com.microsoft:enumerate-rules":            management.enumerateRules,
}

// outside are those that change something and take no part in transactions.
var outside = map[string]bool{
	"com.microsoft:batch-delete-messages": true,
	"com.microsoft:add-rule":              true,
	"com.microsoft:remove-rule":           true,
}

// reading are those that go on while the disk keeps nothing.
var reading = map[string]bool{
	"com.microsoft:peek-message":               true,
	"com.microsoft:renew-lock":                 true,
	"com.microsoft:receive-by-sequence-number": true, // under locks; for deletion it is refused by itself
	"com.microsoft:renew-session-lock":         true,
	"com.microsoft:get-session-state":          true,
	"com.microsoft:get-message-sessions":       true,
	"com.microsoft:enumerate-rules":            true,
}

// errOutside refuses to change something in a transaction that its rollback would not take back.
func errOutside(operation string) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, "The operation '%s' cannot take part in a transaction.", operation)
}

// answer works out the response to one request. The entity is looked up each
// time: where AutoCreate makes entities, the link may be older than it.
func (m management) answer(req *request) response {
	operate := operations[req.operation]
	if operate == nil {
		return unsupported(req.operation)
	}
	if req.txn != nil && outside[req.operation] {
		return refused(errOutside(req.operation))
	}
	if refusal := m.ns.b.disk.Trouble(); refusal != nil && !reading[req.operation] {
		return refused(refusal)
	}
	args, isMap := req.arguments()
	if !isMap {
		return badRequest("The body of the request is no map.")
	}
	find := m.ns.entities.lookup
	if req.operation == "com.microsoft:schedule-message" && !isDead(m.node) {
		find = m.ns.entities.open // the one operation that puts something into a queue
	}
	e, err := find(m.node.Entity())
	if err != nil {
		return refused(err)
	}
	e.touch()
	args.txn = req.txn
	return operate(m, e, e.node(m.node), &args)
}

// maxTokens bounds the lock tokens and sequence numbers of one request.
const maxTokens = 1000

// lockTokens reads the argument of that name.
func (a *arguments) lockTokens() (tokens []queue.LockToken) {
	a.elements("lock-tokens", maxTokens, func(r *amqp.Reader) {
		tokens = append(tokens, queue.LockToken(r.UUID()))
	})
	return tokens
}

// sequenceNumbers reads the argument of that name.
func (a *arguments) sequenceNumbers(most int) (numbers []int64) {
	a.elements("sequence-numbers", most, func(r *amqp.Reader) {
		numbers = append(numbers, r.Integer())
	})
	return numbers
}
