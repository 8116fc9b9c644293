// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/link"
)

// A Resubmission sends copies of dead letters and takes these off their queue.
//
// It sends no copy twice, because the journal has each batch: before it leaves, and again once the
// broker has accepted it. A run that is stopped in between leaves open whether the batch was sent.
// The next run searches the target and its dead letters for its copies. If it finds none, they may
// have been received since, or dropped at the end of their time to live. Then these dead letters
// stay where they are, and the outcome lists them as unsure.
type Resubmission struct {
	Links   *link.Namespace
	Place   Place
	To      string       // the target
	IsQueue bool         // the target is one: copies can be looked for there
	Out     *link.Sender // to the target
	Copying Copying
	Journal *Journal
	Rate    float64       // copies per second; 0 = as fast as possible
	Hold    time.Duration // how long a message may be kept before its lock is at risk
	// Resend has those of the chosen dead letters that are unsure sent again.
	Resend bool
	// Copied is called with how many more copies the broker has accepted, unless it is nil.
	Copied func(n int)
}

// An Outcome counts what a resubmission has done so far. Its lists are never nil.
type Outcome struct {
	Copied   int     `json:"copied"`              // sent, and taken off
	Finished int     `json:"finishedFromEarlier"` // had been sent by an earlier run, and were taken off
	Unsure   []int64 `json:"unsure"`              // may have been sent by an earlier run
	Locked   []int64 `json:"locked"`              // by another client, or by a run that was killed
	Gone     []int64 `json:"notThere"`            // not there any more
}

// NewOutcome is that of a resubmission that has done nothing.
func NewOutcome() Outcome { return Outcome{Unsure: []int64{}, Locked: []int64{}, Gone: []int64{}} }

// Run resubmits the chosen dead letters, and finishes those that an earlier run has left.
func (r *Resubmission) Run(ctx context.Context, chosen map[int64]bool) (o Outcome, err error) {
	o = NewOutcome()
	if err := r.CheckEdits(ctx, chosen); err != nil {
		return o, err
	}
	earlier, err := r.reconcile(ctx)
	if err != nil {
		return o, err
	}
	todo := map[int64]bool{}
	maps.Copy(todo, chosen)
	for n, e := range earlier {
		switch {
		case e.step == sent:
			todo[n] = true
		case r.Resend && chosen[n]:
			if err := r.Journal.forget([]int64{n}); err != nil {
				return o, err
			}
			delete(earlier, n)
			todo[n] = true
		default:
			o.Unsure = append(o.Unsure, n)
			delete(todo, n)
		}
	}
	slices.Sort(o.Unsure)
	pace := newPace(r.Rate)
	err = take(ctx, r.Links, r.Place, todo, atOnce(r.Rate, r.Hold), r.Hold, func(ctx context.Context, ts []*taken) error {
		var before, anew []*taken
		for _, t := range ts {
			if earlier[t.number].step == sent {
				before = append(before, t)
			} else {
				anew = append(anew, t)
			}
		}
		n, err := r.finish(ctx, before)
		if o.Finished += n; err != nil {
			return err
		}
		return r.copyAll(ctx, anew, pace, &o)
	})
	if err != nil {
		return o, err
	}
	if o.Locked, o.Gone, err = Sort(ctx, r.Links, r.Place, todo); err != nil {
		return o, err
	}
	// Those that were sent and that another client has taken off leave the journal.
	return o, r.Journal.forget(slices.DeleteFunc(slices.Clone(o.Gone), func(n int64) bool { return earlier[n].step != sent }))
}

// reconcile returns the journal's entries, those of batches whose copies are in the target as sent.
func (r *Resubmission) reconcile(ctx context.Context) (map[int64]entry, error) {
	all, err := r.Journal.entries()
	if err != nil {
		return nil, err
	}
	open := map[uint64][]int64{} // batches that may have been sent
	for n, e := range all {
		if e.step == sending {
			open[e.batch] = append(open[e.batch], n)
		}
	}
	if len(open) == 0 || !r.IsQueue {
		return all, nil
	}
	found := func(number int64) error {
		batch := all[number].batch
		numbers := open[batch]
		delete(open, batch)
		for _, n := range numbers {
			all[n] = entry{sent, batch}
		}
		return r.Journal.sent(numbers, batch)
	}
	return all, r.search(ctx, all, open, found)
}

// searchMost is how many messages of the target, and how many of its dead letters, are searched for
// copies.
const searchMost = 100_000

// search searches the target for copies, and its dead letters, where a copy is that missed its
// deadline again. A batch was sent as a whole, so one of them is enough.
func (r *Resubmission) search(ctx context.Context, all map[int64]entry, open map[uint64][]int64, found func(number int64) error) error {
	place := r.Place.String()
	for _, path := range []string{r.To, Place{Entity: r.To}.Path()} {
		seen := 0
		var failed error
		err := walk(ctx, r.Links, path, 0, func(l *Letter, err error) bool {
			seen++
			if err == nil { // otherwise it is no copy: those have been read
				number, isNumber := l.Properties[PropertyNumber].(int64)
				_, isOpen := open[all[number].batch]
				if isNumber && isOpen && l.Properties[PropertyFrom] == place && all[number].step == sending {
					failed = r.foundCopy(ctx, l, number, found)
				}
			}
			return failed == nil && seen < searchMost && len(open) > 0
		})
		if err != nil {
			return fmt.Errorf("search %s for copies: %w", path, err)
		}
		if failed != nil || len(open) == 0 {
			return failed
		}
	}
	return nil
}

// foundCopy calls found, unless the copy is older than the dead letter of that number. Then it is
// that of a former queue of the same name, whose numbers were the same.
func (r *Resubmission) foundCopy(ctx context.Context, candidate *Letter, number int64, found func(number int64) error) error {
	isOlder := false
	err := Walk(ctx, r.Links, r.Place, number, func(l *Letter) bool {
		isOlder = l.Number == number && candidate.EnqueuedTime.Before(l.EnqueuedTime)
		return false
	})
	if err != nil || isOlder {
		return err
	}
	return found(number)
}

// finish takes off dead letters whose copies were sent, and drops them from the journal.
func (r *Resubmission) finish(ctx context.Context, ts []*taken) (n int, err error) {
	gone, err := complete(ctx, ts)
	return len(gone), errors.Join(err, r.Journal.forget(gone))
}

// contents peeks at ts, which are in the order of their numbers. They have been received together,
// so few others stand between them. Another client has settled those that are not there.
func (r *Resubmission) contents(ctx context.Context, ts []*taken) (map[int64]*Letter, error) {
	all := map[int64]*Letter{}
	for _, t := range ts {
		if all[t.number] != nil {
			continue
		}
		read := 0
		err := Walk(ctx, r.Links, r.Place, t.number, func(l *Letter) bool {
			all[l.Number] = l
			read++
			return read < len(ts)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// group is what may go as one batch.
type group struct {
	session, key string // as text, with a mark for none
	ts           []*taken
	encoded      [][]byte
	size         int
	letter       *Letter // one of them
}

// envelopeRoom is what a batch needs besides its messages, and each message in it.
const envelopeRoom, messageRoom = 2048, 16

// copyAll copies ts and takes them off, in batches of one session and partition key.
func (r *Resubmission) copyAll(ctx context.Context, ts []*taken, pace *pace, o *Outcome) error {
	if len(ts) == 0 {
		return nil
	}
	slices.SortFunc(ts, func(a, b *taken) int { return int(a.number - b.number) })
	contents, err := r.contents(ctx, ts)
	if err != nil {
		return err
	}
	most := int(r.Out.MaxMessageSize())
	if most == 0 {
		most = 256 << 10
	}
	var open []*group
	flush := func(g *group) error {
		open = slices.DeleteFunc(open, func(x *group) bool { return x == g })
		return r.send(ctx, g, pace, o)
	}
	for _, t := range ts {
		l := contents[t.number]
		if l == nil {
			continue // another client has settled it
		}
		encoded, err := r.Copying.Encode(r.Place, l)
		if err != nil {
			return fmt.Errorf("copy dead letter %d: %w", t.number, err)
		}
		session, key := mark(l.SessionID), mark(l.PartitionKey)
		i := slices.IndexFunc(open, func(g *group) bool { return g.session == session && g.key == key })
		if i >= 0 && open[i].size+len(encoded)+messageRoom > most {
			if err := flush(open[i]); err != nil {
				return err
			}
			i = -1
		}
		if i < 0 {
			open = append(open, &group{session: session, key: key, size: envelopeRoom, letter: l})
			i = len(open) - 1
		}
		g := open[i]
		g.ts, g.encoded, g.size = append(g.ts, t), append(g.encoded, encoded), g.size+len(encoded)+messageRoom
	}
	for len(open) > 0 {
		if err := flush(open[0]); err != nil {
			return err
		}
	}
	return nil
}

func mark(s *string) string {
	if s == nil {
		return ""
	}
	return "=" + *s
}

// send sends one batch and takes its dead letters off.
func (r *Resubmission) send(ctx context.Context, g *group, pace *pace, o *Outcome) error {
	if err := pace.wait(ctx, len(g.ts)); err != nil {
		return err
	}
	numbers := make([]int64, len(g.ts))
	for i, t := range g.ts {
		numbers[i] = t.number
	}
	batch, err := r.Journal.begin(numbers)
	if err != nil {
		return err
	}
	if err := r.Out.Send(ctx, g.encoded, g.letter.SessionID, g.letter.PartitionKey); err != nil {
		err = &sendError{r.To, err}
		if refusedOutright(err) {
			return errors.Join(err, r.Journal.forget(numbers))
		}
		return err // the broker may have it
	}
	if err := r.Journal.sent(numbers, batch); err != nil {
		return err
	}
	o.Copied += len(numbers)
	if r.Copied != nil {
		r.Copied(len(numbers))
	}
	_, err = r.finish(ctx, g.ts)
	return err
}

// A sendError is the error of a batch that the target has not accepted.
type sendError struct {
	to  string
	err error
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// refusedOutright reports whether the broker has said that it does not have the batch.
func refusedOutright(err error) bool {
	switch amqp.Symbol(link.Condition(err)) {
	case "amqp:unauthorized-access", "amqp:not-found", "amqp:not-allowed", "amqp:link:message-size-exceeded", "amqp:resource-limit-exceeded",
		"com.microsoft:entity-disabled", "com.microsoft:argument-error": // not server-busy: an endpoint says so when only the companion failed
		return true
	}
	return false
}
