// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// A holding is a delivery that was not settled yet.
type holding struct {
	wire     *wire
	path     string
	dead     bool
	number   int // of the message
	delivery uint32
}

// act does something at random that a client or an operator can do.
func (l *life) act() {
	all := []func(){
		l.pipeline, l.pipeline, l.pipeline, l.pipeline,
		l.receive, l.receive, l.receive, l.receive,
		l.receiveAndDelete,
		l.schedule, l.cancel,
		l.takeDeferred,
		l.openSession, l.openSession, l.setState, l.closeSession,
		l.transact, l.transact,
		l.purge,
		l.letTimePass, l.letTimePass,
		l.administer,
	}
	all[l.r.IntN(len(all))]()
}

// pipeline begins up to five sends and settlements before it hears of the first.
func (l *life) pipeline() {
	var outcomes []func() outcome
	for n := 1 + l.r.IntN(5); len(outcomes) < n; {
		choose := l.chooseSend
		if len(l.hand) > 0 && l.r.IntN(2) == 0 {
			i := l.r.IntN(len(l.hand))
			h := l.hand[i]
			l.hand = slices.Delete(l.hand, i, i+1)
			choose = func() (string, func(*world), func() func() outcome) { return l.chooseSettlement(h) }
		}
		name, apply, begin := choose()
		await := begin()
		if await == nil {
			break
		}
		outcomes = append(outcomes, await)
		if l.note(name, apply); strings.HasSuffix(name, "failing") || strings.HasSuffix(name, "events") {
			break // what goes to the archive by itself comes there before or after what is sent next
		}
	}
	for i, await := range outcomes {
		l.since[len(l.since)-len(outcomes)+i].outcome = await()
		l.t.Log(l.since[len(l.since)-len(outcomes)+i].name, l.since[len(l.since)-len(outcomes)+i].outcome)
	}
}

func oneOf(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

// newMessage is a new message for an entity.
func (l *life) newMessage(to string) modelMessage {
	l.sends++
	n := l.sends
	m := modelMessage{
		number: n,
		id:     fmt.Sprint("m", n),
		eu:     l.r.IntN(2) == 0,
	}
	size := l.r.IntN(400)
	if l.r.IntN(20) == 0 {
		size += 32 << 10 // more than a block of the log
	}
	m.size = len(bodyOf(n, size))
	switch {
	case to == "carts":
		m.session = oneOf(l.r, "a", "b")
	case to == "once":
		m.id = oneOf(l.r, "a", "b", "c", "d")
	case to == "orders" && l.r.IntN(3) == 0:
		m.ttl = stepOfTime/2 + stepOfTime*time.Duration(l.r.IntN(3))
	}
	return m
}

// An operation is begun by begin, which returns how to wait for its outcome, nil when the broker is
// gone.
func (l *life) chooseSend() (name string, apply func(*world), begin func() (await func() outcome)) {
	targets := []string{"orders", "carts", "once", "once", "once", "relay", "failing", "archive", "events"}
	if l.world.entities["extra"] != nil {
		targets = append(targets, "extra")
	}
	to := oneOf(l.r, targets...)
	messages := []modelMessage{l.newMessage(to)}
	payload, format := messages[0].encode(l.base), uint32(0)
	if second := l.newMessage(to); l.r.IntN(5) == 0 && len(payload)+second.size < maxFrameSize/2 {
		messages, payload, format = append(messages, second), nil, amqp.BatchMessageFormat
		for _, m := range messages {
			payload = amqp.AppendData(payload, m.encode(l.base))
		}
	}
	return fmt.Sprint("send ", messages[0].number, " to ", to), func(w *world) { w.send(to, messages...) }, func() func() outcome {
		link := l.client.sender(to)
		if link == nil {
			return nil
		}
		return awaiting(l.client, l.client.transfer(link, format, nil, payload), amqp.RoleReceiver)
	}
}

func awaiting(w *wire, delivery uint32, role amqp.Role) func() outcome {
	return func() outcome {
		o, _ := w.outcomeOf(delivery, role)
		return o
	}
}

// chooseSettlement settles one of those in hand.
func (l *life) chooseSettlement(h holding) (name string, apply func(*world), begin func() (await func() outcome)) {
	hows := []string{"complete", "complete", "abandon", "release", "defer", "dead-modelMessage"}
	if h.dead {
		hows = hows[:4]
	}
	how := oneOf(l.r, hows...)
	states := map[string]amqp.DeliveryState{
		"complete":          amqp.Accepted{},
		"abandon":           &amqp.Modified{DeliveryFailed: true},
		"release":           amqp.Released{},
		"defer":             &amqp.Modified{UndeliverableHere: true},
		"dead-modelMessage": &amqp.Rejected{Error: &amqp.Error{Condition: "why"}},
	}
	apply = func(w *world) {
		m := w.entities[h.path].find(h.dead, h.number)
		switch how {
		case "complete":
			w.entities[h.path].remove(h.dead, h.number)
		case "abandon", "release":
			w.giveBack(h.path, h.dead, h.number, how == "abandon")
		case "dead-modelMessage":
			w.bury(h.path, h.number, "why")
		case "defer":
			m.held, m.state = false, queue.Deferred
			if m.count++; m.count >= w.entities[h.path].max {
				w.bury(h.path, h.number, "MaxDeliveryCountExceeded")
			}
		}
	}
	return fmt.Sprint(how, " ", h.number, " of ", h.path), apply, func() func() outcome {
		h.wire.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: h.delivery, Last: h.delivery, State: states[how]}, nil)
		return awaiting(h.wire, h.delivery, amqp.RoleSender)
	}
}

// receiver is a link that receives messages, of a session where that is named.
func (l *life) receiver(w *wire, path string, dead bool, session string) *wireLink {
	name, address := fmt.Sprint("from ", path, dead, session), path
	if dead {
		address += "/$DeadLetterQueue"
	}
	source := &amqp.Source{Address: address, HasAddress: true}
	if session != "" {
		source.Filter = encoded(amqp.Map{{Key: amqp.Symbol("com.microsoft:session-filter"), Value: session}})
	}
	return w.attach(name, amqp.RoleReceiver, func(a *amqp.Attach) { a.Source, a.Target = source, &amqp.Target{} })
}

func (l *life) receive() {
	path := oneOf(l.r, "orders", "orders", "orders", "failing", "failing", "archive", "events/Subscriptions/all", "events/Subscriptions/eu", "extra", "carts", "carts")
	session := ""
	if path == "carts" {
		if session = oneOf(l.r, "a", "b"); l.sessions[session] == 0 {
			return
		}
	}
	l.receiveFrom(l.client, path, l.r.IntN(5) == 0 && path == "orders", session)
}

// receiveFrom receives the next message under a lock.
func (l *life) receiveFrom(w *wire, path string, dead bool, session string) (h holding, ok bool) {
	s := l.world.entities[path]
	if s == nil || s.first(dead, session) == nil {
		return h, false
	}
	number, until := s.first(dead, session).number, l.world.now+lockDuration
	if session != "" {
		until = l.sessions[session]
	}
	var delivery uint32
	l.do(fmt.Sprint("receive ", number, " from ", path), func(w *world) {
		m := w.entities[path].find(dead, number)
		m.held, m.until = true, until
	}, func() outcome {
		link := l.receiver(w, path, dead, session)
		if link == nil {
			return unanswered
		}
		t, m, o := w.receive(link)
		if o != accepted {
			return o
		}
		l.wantMessage(m, number, path)
		h, ok = holding{w, path, dead, number, t.DeliveryID}, true
		delivery = t.DeliveryID
		if l.faulty {
			return unanswered // trouble with the disk keeps nobody from reading
		}
		return accepted
	})
	h.delivery = delivery
	if ok {
		l.hand = append(l.hand, h)
	}
	return h, ok
}

func (l *life) wantMessage(m amqp.Message, number int, path string) {
	l.t.Helper()
	for data := range amqp.DataSections(m.Body) {
		if got, _, err := readBody(data); err != nil || got != number {
			l.t.Errorf("from %s came message %d (%v), want %d", path, got, err, number)
		}
	}
}

func (l *life) receiveAndDelete() {
	path := oneOf(l.r, "orders", "archive", "events/Subscriptions/all")
	m := l.world.entities[path].first(false, "")
	if m == nil {
		return
	}
	number := m.number
	l.do(fmt.Sprint("receive and delete ", number, " from ", path), func(w *world) { w.entities[path].remove(false, number) }, func() outcome {
		link := l.client.attach("take "+path, amqp.RoleReceiver, func(a *amqp.Attach) {
			a.SndSettleMode = amqp.SndSettled
			a.Source, a.Target = &amqp.Source{Address: path, HasAddress: true}, &amqp.Target{}
		})
		if link == nil {
			return unanswered
		}
		_, m, o := l.client.receive(link)
		if o == accepted {
			l.wantMessage(m, number, path)
		}
		return o
	})
}

func (l *life) schedule() {
	to := oneOf(l.r, "orders", "events")
	m := l.newMessage(to)
	m.ttl, m.due = 0, l.world.now+stepOfTime/2+stepOfTime*time.Duration(l.r.IntN(3))
	l.do(fmt.Sprint("schedule ", m.number, " on ", to), func(w *world) { w.send(to, m) }, func() outcome {
		o, _ := l.client.manage(to, "schedule-message", amqp.Map{{Key: "messages", Value: amqp.List{amqp.Map{
			{Key: "message-id", Value: m.id},
			{Key: "message", Value: m.encode(l.base)},
		}}}})
		return o
	})
}

// numberOf is the sequence number of one of the messages that are in a state.
func (l *life) numberOf(path string, state queue.State) (number int, sequence int64, ok bool) {
	var some []modelMessage
	for _, m := range l.world.entities[path].messages {
		if m.state == state && !m.held && m.expires == 0 {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return 0, 0, false
	}
	number = some[l.r.IntN(len(some))].number
	for _, v := range l.peek(path, false) {
		if n, _, _ := contentOf(&v); n == number {
			return number, v.SequenceNumber, true
		}
	}
	l.t.Fatalf("message %d is not in %s", number, path)
	return 0, 0, false
}

func (l *life) cancel() {
	path := oneOf(l.r, "orders", "events")
	number, sequence, ok := l.numberOf(path, queue.Scheduled)
	if !ok {
		return
	}
	l.do(fmt.Sprint("cancel ", number, " on ", path), func(w *world) { w.entities[path].remove(false, number) }, func() outcome {
		o, _ := l.client.manage(path, "cancel-scheduled-message", amqp.Map{{Key: "sequence-numbers", Value: amqp.Array{sequence}}})
		return o
	})
}

func (l *life) takeDeferred() {
	number, sequence, ok := l.numberOf("orders", queue.Deferred)
	if !ok {
		return
	}
	l.do(fmt.Sprint("take deferred ", number), func(w *world) { w.entities["orders"].remove(false, number) }, func() outcome {
		o, _ := l.client.manage("orders", "receive-by-sequence-number", amqp.Map{
			{Key: "sequence-numbers", Value: amqp.Array{sequence}},
			{Key: "receiver-settle-mode", Value: uint32(0)},
		})
		return o
	})
}

func (l *life) openSession() {
	session := oneOf(l.r, "a", "b")
	if l.sessions[session] == 0 && l.receiver(l.client, "carts", false, session) != nil {
		l.sessions[session] = l.world.now + lockDuration
	}
}

func (l *life) setState() {
	session, state := oneOf(l.r, "a", "b"), oneOf(l.r, "", fmt.Sprint("state ", l.sends))
	if l.sessions[session] == 0 {
		return
	}
	l.do("set state of "+session, func(w *world) {
		if delete(w.entities["carts"].states, session); state != "" {
			w.entities["carts"].states[session] = state
		}
	}, func() outcome {
		o, _ := l.client.manage("carts", "set-session-state", amqp.Map{
			{Key: "session-id", Value: session},
			{Key: "session-state", Value: []byte(state)},
		})
		return o
	})
}

// closeSession gives back what was received under the lock of a session.
func (l *life) closeSession() {
	session := oneOf(l.r, "a", "b")
	if l.sessions[session] == 0 {
		return
	}
	l.forgetSession(session)
	l.do("close session "+session, func(w *world) {
		for _, m := range slices.Clone(w.entities["carts"].messages) {
			if m.held && m.session == session {
				w.giveBack("carts", false, m.number, false)
			}
		}
	}, func() outcome {
		l.client.detach(fmt.Sprint("from carts", false, session))
		return unanswered // a detach is no outcome
	})
}

func (l *life) forgetSession(session string) {
	delete(l.sessions, session)
	l.hand = slices.DeleteFunc(l.hand, func(h holding) bool {
		m := l.world.entities[h.path].find(h.dead, h.number)
		return h.path == "carts" && m != nil && m.session == session
	})
}

// transact completes a message, sends one to its queue and another via it, all or nothing.
func (l *life) transact() {
	if l.other == nil {
		l.other = l.connect()
	}
	toOrders := l.other.sender("orders") // the first link: the transactions take place there
	control := l.other.attach("coordinator", amqp.RoleSender, func(a *amqp.Attach) { a.Source, a.Coordinator = &amqp.Source{}, &amqp.Coordinator{} })
	toArchive := l.other.sender("archive")
	h, received := l.receiveFrom(l.other, "orders", false, "")
	if received {
		l.hand = l.hand[:len(l.hand)-1]
	}
	if toOrders == nil || control == nil || toArchive == nil || l.trouble() {
		return
	}
	_, state := l.other.outcomeOf(l.other.transfer(control, 0, nil, amqp.AppendValueSection(nil, new(amqp.Declare).Append(nil))), amqp.RoleReceiver)
	declared, ok := state.(*amqp.Declared)
	if !ok {
		return // the broker is gone
	}
	first, second, fail := l.newMessage("orders"), l.newMessage("archive"), l.r.IntN(4) == 0
	apply := func(w *world) {
		w.send("orders", first)
		w.send("archive", second)
		if received {
			w.entities["orders"].remove(false, h.number)
		}
	}
	if fail {
		apply = func(*world) {} // the lock goes on
	}
	l.do(fmt.Sprint("transact ", first.number, " ", second.number, ", fail ", fail), apply, func() outcome {
		l.other.transfer(toOrders, 0, declared.TxnID, first.encode(l.base))
		l.other.transfer(toArchive, 0, declared.TxnID, second.encode(l.base))
		if received {
			l.other.send(&amqp.Disposition{
				Role:  amqp.RoleReceiver,
				First: h.delivery,
				Last:  h.delivery,
				State: &amqp.TransactionalState{TxnID: declared.TxnID, Outcome: amqp.Accepted{}},
			}, nil)
		}
		discharge := &amqp.Discharge{TxnID: declared.TxnID, Fail: fail}
		o, _ := l.other.outcomeOf(l.other.transfer(control, 0, nil, amqp.AppendValueSection(nil, discharge.Append(nil))), amqp.RoleReceiver)
		return o
	})
}

// purge deletes the oldest messages of the archive.
func (l *life) purge() {
	const most = 2
	var oldest []int
	for _, m := range l.world.entities["archive"].messages {
		if !m.held && m.state == queue.Active && len(oldest) < most {
			oldest = append(oldest, m.number)
		}
	}
	l.do(fmt.Sprint("purge archive of ", oldest), func(w *world) {
		for _, number := range oldest {
			w.entities["archive"].remove(false, number)
		}
	}, func() outcome {
		o, _ := l.client.manage("archive", "batch-delete-messages", amqp.Map{{Key: "message-count", Value: int32(most)}})
		return o
	})
}

// letTimePass lets time pass.
func (l *life) letTimePass() {
	now := l.world.now + stepOfTime
	l.hand = slices.DeleteFunc(l.hand, func(h holding) bool {
		m := l.world.entities[h.path].find(h.dead, h.number)
		return m == nil || m.until <= now
	})
	for session, until := range l.sessions {
		if until <= now {
			l.forgetSession(session)
			l.client.forget(fmt.Sprint("from carts", false, session))
		}
	}
	l.do("time passes", func(w *world) { w.advance(now) }, func() outcome {
		l.ns.Broker.SetClockOffset(now)
		return unanswered
	})
	l.since[len(l.since)-1].certain = true
}

// administer changes entities.
func (l *life) administer() {
	n := l.ns.Broker.Default()
	w := l.world
	switch l.r.IntN(5) {
	case 0:
		if w.entities["extra"] == nil {
			l.administerOne("make extra", func(w *world) { w.entities["extra"] = &modelEntity{max: 10} }, func() error {
				_, err := n.CreateQueue(broker.QueueConfig{Name: "extra"})
				return err
			})
			return
		}
		l.forget("extra")
		l.administerOne("delete extra", func(w *world) { delete(w.entities, "extra") }, func() error { return n.DeleteQueue("extra") })
	case 1:
		everyone := !w.everyone
		l.administerOne(fmt.Sprint("eu for everyone: ", everyone), func(w *world) { w.everyone = everyone }, func() error {
			if !everyone {
				return n.DeleteRule("events", "eu", "everyone")
			}
			_, err := n.CreateRule("events", "eu", broker.RuleConfig{Name: "everyone"})
			return err
		})
	case 2:
		to := map[string]string{"": "archive", "archive": ""}[w.entities["relay"].forward]
		l.forget("relay")
		l.administerOne("relay to "+to, func(w *world) {
			w.entities["relay"].forward = to
			w.pass("relay")
		}, func() error {
			_, err := n.UpdateQueue(broker.QueueConfig{Name: "relay", ForwardTo: to})
			return err
		})
	case 3:
		note := fmt.Sprint("note ", l.sends)
		l.forget("archive")
		l.administerOne(note, func(w *world) { w.note = note }, func() error {
			_, err := n.UpdateQueue(broker.QueueConfig{Name: "archive", UserMetadata: note})
			return err
		})
	case 4:
		path := oneOf(l.r, "orders", "carts", "once", "failing", "archive", "events/Subscriptions/all")
		l.hand = slices.DeleteFunc(l.hand, func(h holding) bool { return h.path == path })
		l.administerOne("empty "+path, func(w *world) { w.entities[path].purge() }, func() error {
			_, err := n.Purge(path)
			return err
		})
	}
}

// purge leaves nothing but the entity.
func (s *modelEntity) purge() {
	s.messages, s.dead = nil, nil
	clear(s.sent)
	clear(s.states)
}

// administerOne is do for an operator, who hears of an error.
func (l *life) administerOne(name string, apply func(*world), change func() error) {
	l.do(name, apply, func() outcome {
		err := change()
		switch {
		case l.client.stopped():
			return unanswered
		case err == nil:
			return accepted
		case !errors.Is(err, queue.ErrNoRoom) && !errors.Is(err, queue.ErrNotStored):
			l.t.Errorf("%s: %v", name, err)
		}
		return refused
	})
}

// forget parts with the links to an entity and with what was received there.
func (l *life) forget(path string) {
	for _, w := range []*wire{l.client, l.other} {
		if w != nil {
			for _, name := range []string{"to " + path, "take " + path, fmt.Sprint("from ", path, false)} {
				w.forget(name)
			}
		}
	}
	l.hand = slices.DeleteFunc(l.hand, func(h holding) bool { return h.path == path })
}
