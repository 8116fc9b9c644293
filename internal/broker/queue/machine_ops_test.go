// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// operations is what consumers do, on a queue or its dead-letter queue.
func (mc *machine) operations() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"receive":          mc.receive,
		"receive again":    mc.receive,
		"new consumer":     mc.newConsumer,
		"close consumer":   mc.onConsumer(mc.closeConsumer),
		"credit":           mc.onConsumer(mc.addCredit),
		"more credit":      mc.onConsumer(mc.addCredit),
		"set credit":       mc.onConsumer(mc.setCredit),
		"drain":            mc.onConsumer(mc.drain),
		"take":             mc.onConsumer(mc.take),
		"take again":       mc.onConsumer(mc.take),
		"complete":         mc.settle(Complete),
		"abandon":          mc.settle(Abandon),
		"release":          mc.settle(Release),
		"defer":            mc.settle(Defer),
		"dead-letter":      mc.settle(DeadLetter),
		"hold":             mc.hold,
		"end hold":         mc.endHold,
		"renew":            mc.renew,
		"receive deferred": mc.receiveDeferred,
	}
}

func (mc *machine) newConsumer(t *rapid.T) {
	if len(mc.consumers) >= 3 {
		t.Skip("enough")
	}
	mode := rapid.SampledFrom([]Mode{PeekLock, PeekLock, ReceiveAndDelete, LockAndRemove}).Draw(t, "mode")
	var c *Consumer
	o := &modelConsumer{mode: mode}
	if mc.m.cfg.RequiresSession {
		if len(mc.sessions) == 0 {
			mc.acceptSession(t)
		}
		i := rapid.IntRange(0, len(mc.sessions)-1).Draw(t, "session")
		c, o.under = mc.sessions[i].h.NewConsumer(mode), mc.sessions[i].l
	} else {
		c = mc.q.NewConsumer(mode)
	}
	c.limit = rapid.IntRange(1, 4).Draw(t, "outbox limit")
	o.limit = c.limit
	mc.consumers = append(mc.consumers, c)
	mc.m.consumers = append(mc.m.consumers, o)
}

// receive is what a client does most: credit, and what comes of it.
func (mc *machine) receive(t *rapid.T) {
	if len(mc.consumers) == 0 {
		mc.newConsumer(t)
	}
	mc.onConsumer(mc.addCredit)(t)
	mc.onConsumer(mc.take)(t)
}

func (mc *machine) onConsumer(op func(*rapid.T, *Consumer, *modelConsumer)) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(mc.consumers) == 0 {
			t.Skip("no consumer")
		}
		i := rapid.IntRange(0, len(mc.consumers)-1).Draw(t, "consumer")
		op(t, mc.consumers[i], mc.m.consumers[i])
	}
}

func (mc *machine) closeConsumer(t *rapid.T, c *Consumer, o *modelConsumer) {
	i := slices.Index(mc.consumers, c)
	mc.consumers = slices.Delete(mc.consumers, i, i+1)
	c.Close()
	mc.m.close(o)
	mc.m.settleDead()
}

func (mc *machine) addCredit(t *rapid.T, c *Consumer, o *modelConsumer) {
	n := rapid.SampledFrom([]int{1, 1, 2, 5, 20, -1, -4}).Draw(t, "n")
	c.AddCredit(int64(n))
	mc.m.addCredit(o, n)
	mc.m.settleDead()
}

func (mc *machine) setCredit(t *rapid.T, c *Consumer, o *modelConsumer) {
	n := rapid.IntRange(0, 6).Draw(t, "n")
	c.SetCredit(uint32(n))
	mc.m.addCredit(o, n-(mc.m.creditOf(o)-o.debt+len(o.outbox)+o.lapsed))
	mc.m.settleDead()
}

func (mc *machine) drain(t *rapid.T, c *Consumer, o *modelConsumer) {
	c.Drain()
	o.draining = true
	mc.m.resume(o)
	mc.m.settleDead()
}

func (mc *machine) take(t *rapid.T, c *Consumer, o *modelConsumer) {
	taken, wantDrained := mc.m.take(o)
	var want []View
	for _, x := range taken {
		want = append(want, x.View)
	}
	ready := false
	select {
	case <-c.Ready():
		ready = true
	default:
	}
	ds, drained, _ := c.Take(nil)
	if (len(ds) > 0 || drained) && !ready {
		t.Fatalf("Take gave %d deliveries, drained %v, but Ready had not yielded", len(ds), drained)
	}
	var got []View
	for i, d := range ds {
		got = append(got, d.View)
		if (d.LockToken != LockToken{}) != (c.mode != ReceiveAndDelete) {
			t.Fatalf("lock token in mode %d = %x", c.mode, d.LockToken)
		}
		if c.mode != ReceiveAndDelete {
			taken[i].token = d.LockToken
			mc.tokens = append(mc.tokens, d.LockToken)
		}
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Take: -want +got:\n%s", diff)
	}
	if drained != wantDrained {
		t.Fatalf("Take: drained = %v, want %v", drained, wantDrained)
	}
	mc.m.settleDead()
}

func (mc *machine) anyToken(t *rapid.T) (LockToken, *modelMsg) {
	if len(mc.tokens) == 0 {
		t.Skip("no token")
	}
	token := mc.tokens[len(mc.tokens)-1-rapid.IntRange(0, min(8, len(mc.tokens)-1)).Draw(t, "token")]
	for _, x := range mc.m.msgs {
		if x.Locked && x.holder == nil && x.token == token {
			return token, x
		}
	}
	return token, nil
}

func (mc *machine) settle(outcome Outcome) func(*rapid.T) {
	return func(t *rapid.T) {
		token, x := mc.anyToken(t)
		s := Settlement{Outcome: outcome, DeadLetterReason: "r", DeadLetterErrorDescription: "d"}
		if rapid.Bool().Draw(t, "with property") {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
			s.Properties = []Property{{key, rapid.StringN(0, 3, 9).Draw(t, "value")}}
		}
		want := mc.wantSettled(x, outcome)
		var got error
		if errs := mc.q.Settle(s, token); errs != nil {
			got = errs[0]
		}
		if !errors.Is(got, want) {
			t.Fatalf("settling = %v, want %v", got, want)
		}
		if want == nil {
			mc.m.settle(x, s)
		}
	}
}

func (m *model) settle(x *modelMsg, s Settlement) {
	if s.Outcome != Complete && s.Outcome != Release {
		for _, p := range s.Properties {
			i := slices.IndexFunc(x.Properties, func(o Property) bool { return o.Key == p.Key })
			x.Properties = slices.Clone(x.Properties)
			if i < 0 {
				x.Properties = append(x.Properties, p)
			} else {
				x.Properties[i] = p
			}
		}
	}
	switch s.Outcome {
	case Complete:
		m.remove(x)
	case Abandon, Release:
		m.giveBack(x, s.Outcome == Abandon)
	case Defer:
		x.Locked, x.State = false, Deferred
		if m.countDelivery(x) {
			m.deadLetterSpent(x)
		}
	case DeadLetter:
		m.deadLetter(x, s.DeadLetterReason, s.DeadLetterErrorDescription)
	}
	m.assign()
	m.settleDead()
}

// settleDead lets the consumers of the dead-letter queue have what has come there.
func (m *model) settleDead() {
	if m.dead != nil {
		m.dead.assign()
	}
}

func (mc *machine) renew(t *rapid.T) {
	token, x := mc.anyToken(t)
	until, err := mc.q.RenewLock(token)
	if x == nil {
		if !errors.Is(err, ErrLockLost) {
			t.Fatalf("RenewLock = %v, want ErrLockLost", err)
		}
		return
	}
	if mc.m.cfg.RequiresSession {
		if !errors.Is(err, ErrLockedBySession) {
			t.Fatalf("RenewLock in a session = %v, want ErrLockedBySession", err)
		}
		return
	}
	x.LockedUntil = mc.m.now.Add(mc.m.cfg.LockDuration)
	if err != nil || !until.Equal(x.LockedUntil) {
		t.Fatalf("RenewLock = %v, %v, want %v", until, err, x.LockedUntil)
	}
}

func (mc *machine) receiveDeferred(t *rapid.T) {
	seqs := mc.someNumbers(t, Deferred)
	mode := rapid.SampledFrom([]Mode{PeekLock, PeekLock, ReceiveAndDelete, LockAndRemove}).Draw(t, "mode")
	var want []View
	var wantErr error
	var xs []*modelMsg
	receive := mc.q.ReceiveDeferred
	fit := func(*modelMsg) bool { return true }
	if mc.m.cfg.RequiresSession {
		id := anySession(t)
		if x := mc.m.find(seqs[0]); x != nil && rapid.Bool().Draw(t, "its session") {
			id = x.SessionID
		}
		receive = func(mode Mode, seqs ...int64) ([]Delivery, error) {
			return mc.q.Sessions().ReceiveDeferred(mode, id, seqs...)
		}
		if mc.m.lockOf(id) == nil {
			if _, err := receive(mode, seqs...); !errors.Is(err, ErrSessionLockLost) {
				t.Fatalf("Sessions.ReceiveDeferred without the lock = %v, want ErrSessionLockLost", err)
			}
			return
		}
		fit = func(x *modelMsg) bool { return x.SessionID == id }
	}
	for _, seq := range seqs {
		x := mc.m.find(seq)
		switch {
		case x == nil || x.State != Deferred || x.Locked || !fit(x):
			wantErr = ErrMessageNotFound
		case mc.m.expired(x):
			wantErr = ErrMessageNotFound
			mc.m.expire(x)
			mc.m.settleDead()
		default:
			xs = append(xs, x)
		}
	}
	ds, err := receive(mode, seqs...)
	if !errors.Is(err, wantErr) {
		t.Fatalf("ReceiveDeferred(%d) = %v, want %v", seqs, err, wantErr)
	}
	if wantErr != nil {
		return
	}
	var got []View
	for i, x := range xs {
		got = append(got, ds[i].View)
		if mode == ReceiveAndDelete {
			want = append(want, x.View)
			mc.m.remove(x)
			continue
		}
		mc.m.lock(x)
		want = append(want, x.View)
		x.token = ds[i].LockToken
		mc.tokens = append(mc.tokens, x.token)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("ReceiveDeferred: -want +got:\n%s", diff)
	}
}
