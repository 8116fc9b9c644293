// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// modelHold is a settlement that is prepared, or scheduled messages that are about to be cancelled.
type modelHold struct {
	h  *Held
	s  Settlement
	xs []*modelMsg
}

// modelReserved is messages that are about to be sent.
type modelReserved struct {
	r    *Reserved
	ms   []Message
	size int64
}

var outcomes = []Outcome{Complete, Abandon, Release, Defer, DeadLetter}

func (mc *machine) hold(t *rapid.T) {
	token, x := mc.anyToken(t)
	s := Settlement{Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"), DeadLetterReason: "r", DeadLetterErrorDescription: "d"}
	want := mc.wantSettled(x, s.Outcome)
	h, err := mc.q.Hold(s, token)
	if !errors.Is(err, want) {
		t.Fatalf("Hold = %v, want %v", err, want)
	}
	if want == nil {
		x.held = true
		mc.holds = append(mc.holds, &modelHold{h, s, []*modelMsg{x}})
	}
}

// wantSettled is what settling x comes to.
func (mc *machine) wantSettled(x *modelMsg, outcome Outcome) error {
	switch {
	case x == nil || x.held:
		return ErrLockLost
	case outcome == DeadLetter && mc.m.dead == nil:
		return ErrDeadLetterQueue
	}
	return nil
}

// endHold settles what is held, or lets it go.
func (mc *machine) endHold(t *rapid.T) {
	if len(mc.holds) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(mc.holds)-1).Draw(t, "hold")
	hold := mc.holds[i]
	mc.holds = slices.Delete(mc.holds, i, i+1)
	commit := rapid.Bool().Draw(t, "commit")
	if commit {
		if err := hold.h.Settle(); err != nil {
			t.Fatalf("Settle of what is held = %v", err)
		}
	} else {
		hold.h.Cancel()
	}
	for _, x := range hold.xs {
		x.held = false
		switch {
		case !slices.Contains(mc.m.msgs, x): // purged
		case commit && x.State == Scheduled:
			mc.m.remove(x)
		case commit:
			mc.m.settle(x, hold.s)
		case x.under != nil && x.under.over:
			mc.m.giveBack(x, x.under.lapsed)
		}
	}
	mc.m.settleTime()
	mc.m.settleDead()
}

// mayCancel says why scheduled messages cannot be cancelled, nil: they can.
func (m *model) mayCancel(seqs []int64) (err error) {
	for _, seq := range seqs {
		switch x := m.find(seq); {
		case x == nil || x.State != Scheduled:
			return ErrMessageNotFound
		case x.held:
			err = ErrBeingCanceled
		}
	}
	return err
}

// transactions is what only the queue itself can do.
func (mc *machine) transactions(batch func(*rapid.T, bool) []Message) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"hold scheduled": func(t *rapid.T) {
			seqs := mc.someNumbers(t, Scheduled)
			var xs []*modelMsg
			want := mc.m.mayCancel(seqs)
			for _, seq := range seqs {
				xs = append(xs, mc.m.find(seq))
			}
			h, err := mc.q.HoldScheduled(seqs...)
			if !errors.Is(err, want) {
				t.Fatalf("HoldScheduled(%d) = %v, want %v", seqs, err, want)
			}
			if want == nil {
				for _, x := range xs {
					x.held = true
				}
				mc.holds = append(mc.holds, &modelHold{h: h, xs: xs})
			}
		},
		"reserve": func(t *rapid.T) {
			r, err := mc.q.Reserve(false, batch(t, rapid.Bool().Draw(t, "scheduled"))...)
			if err != nil {
				t.Fatalf("Reserve = %v", err)
			}
			mc.reserved = append(mc.reserved, &modelReserved{r, r.ms, r.size})
		},
		"send reserved": func(t *rapid.T) {
			if len(mc.reserved) == 0 {
				t.Skip("nothing is reserved")
			}
			i := rapid.IntRange(0, len(mc.reserved)-1).Draw(t, "reserved")
			o := mc.reserved[i]
			mc.reserved = slices.Delete(mc.reserved, i, i+1)
			if rapid.Bool().Draw(t, "cancel") {
				o.r.Cancel()
				return
			}
			want := mc.m.send(o.ms...)
			if first, err := o.r.Send(); err != nil || first != want[0] {
				t.Fatalf("Send of what is reserved = %d, %v, want %d", first, err, want[0])
			}
		},
		"delete batch": mc.deleteBatch,
		"purge":        mc.purge,
		"update":       mc.update,
	}
}

func (mc *machine) deleteBatch(t *rapid.T) {
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	before := mc.m.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, -5}).Draw(t, "before")) * time.Second)
	m := mc.m
	var session *string
	if m.cfg.RequiresSession && rapid.Bool().Draw(t, "of a session") {
		id := anySession(t)
		session = &id
	}
	if m.cfg.Expiry != LazyHead {
		m.flush()
	}
	order := m.waiting()
	if m.cfg.RequiresSession && session == nil {
		order = slices.DeleteFunc(m.sorted(), func(x *modelMsg) bool { return x.State != Active || x.Locked })
	}
	want := 0
	for _, x := range order {
		if session != nil && x.SessionID != *session {
			continue
		}
		if want == limit || x.EnqueuedTime.After(before) {
			break
		}
		if m.expired(x) {
			m.expire(x)
			continue
		}
		m.remove(x)
		want++
	}
	m.settleDead()
	if got, err := mc.q.DeleteBatch(limit, before, session); err != nil || got != want {
		t.Fatalf("DeleteBatch = %d, %v, want %d", got, err, want)
	}
}

// purge removes everything, on a dead-letter queue what is dead alone.
func (mc *machine) purge(t *rapid.T) {
	want := mc.q.Counts()
	mc.m.purge()
	if got := mc.q.Purge(); got != want {
		t.Fatalf("Purge = %+v, want %+v", got, want)
	}
}

func (m *model) purge() {
	for _, c := range m.consumers {
		c.lapsed += len(c.outbox)
		c.outbox = nil
	}
	m.msgs, m.sent = nil, nil
	clear(m.states)
	m.note()
	if m.dead != nil {
		m.dead.purge()
	}
}

// update changes what a queue can change in its life.
func (mc *machine) update(t *rapid.T) {
	cfg := Config{
		LockDuration:                     time.Duration(rapid.SampledFrom([]int{5, 10}).Draw(t, "lock duration")) * time.Second,
		MaxDeliveryCount:                 rapid.IntRange(1, 3).Draw(t, "max delivery count"),
		DefaultMessageTimeToLive:         time.Duration(rapid.IntRange(0, 1).Draw(t, "default ttl")) * 40 * time.Second,
		DeadLetteringOnMessageExpiration: rapid.Bool().Draw(t, "dead-lettering"),
		// 20 seconds, the least that there is
		DuplicateDetectionHistoryTimeWindow: modelWindow,
	}
	if err := mc.q.Update(cfg); err != nil {
		t.Fatalf("Update = %v", err)
	}
	for _, m := range []*model{mc.m, mc.m.dead} {
		m.cfg.LockDuration, m.cfg.MaxDeliveryCount = cfg.LockDuration, cfg.MaxDeliveryCount
		m.cfg.DefaultMessageTimeToLive = cfg.DefaultMessageTimeToLive
		m.cfg.DeadLetteringOnMessageExpiration = cfg.DeadLetteringOnMessageExpiration
	}
}

// modelWindow is how long a queue of the model knows a message.
const modelWindow = MinDuplicateDetectionHistoryTimeWindow

// modelSent is what the model knows of what was sent, in order of arrival.
type modelSent struct {
	key string
	at  time.Time
}

// duplicate remembers msg, unless it is known.
func (m *model) duplicate(msg Message) bool {
	if !m.cfg.RequiresDuplicateDetection || msg.MessageID == "" {
		return false
	}
	key := msg.MessageID
	if m.cfg.Partitioned {
		key = msg.partitionKey() + "\x00" + key
	}
	for _, s := range slices.Backward(m.sent) {
		if s.key == key && m.now.Before(s.at.Add(modelWindow)) {
			return true
		}
		if s.key == key {
			break // the latest counts, on a clock that was set back
		}
	}
	m.sent = append(m.sent, modelSent{key, m.now})
	return false
}

// forget drops what is too old, from the front.
func (m *model) forget() {
	for len(m.sent) > 0 && !m.now.Before(m.sent[0].at.Add(modelWindow)) {
		m.sent = m.sent[1:]
	}
}

// number is the sequence number of the next message.
func (m *model) number(msg Message) int64 {
	m.lastSeq++
	if !m.cfg.Partitioned {
		return m.lastSeq
	}
	p := m.turn
	if key := msg.partitionKey(); key != "" {
		p = hash(key)
	} else {
		m.turn++
	}
	return int64(p%16+1)<<48 | m.lastSeq
}
