// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/broker/queue"
)

// crashSeeds is how many histories are broken off in each run.
var crashSeeds = flag.Uint64("crash-seeds", 200, "histories that TestCrashLeavesABeginningOfTheHistory breaks off")

// A history is steps of two queues as a model has them: after how many of them which messages,
// states of sessions and message-ids are there.
type history struct {
	states  []map[string]string // by number of steps; for the keys see step
	whole   []bool              // by number of steps: no Hold lasts
	acked   atomic.Int64        // steps that were said to be on disk
	atCrash int64               // acked, when power was lost
}

// TestCrashLeavesABeginningOfTheHistory loses power at any byte that is written, and then at any
// byte of what the next process writes. Blocks that were not synced survive at random. In half of
// the histories the disk is full now and then, for a few writes. There must be all steps up to one,
// at least those that were said to be on disk. Of those that are held together there must be all or
// none.
func TestCrashLeavesABeginningOfTheHistory(t *testing.T) {
	for seed := range *crashSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 41))
			d := newDisk()
			openOn(t, d).Close() // the crash of a directory that is yet to be made has a test of its own
			before := map[string]string{}
			record := int64(0)
			for range 3 {
				var h *history
				h, d, record = crash(t, r, d, before, record)
				before = h.check(t, d)
			}
		})
	}
}

// crash runs random steps until power is lost.
func crash(t *testing.T, r *rand.Rand, d *disk, before map[string]string, record int64) (h *history, after *disk, last int64) {
	h = new(history)
	h.states, h.whole = []map[string]string{before}, []bool{true}
	s := openOn(t, d)
	unsynced := []int{0, 30, 70, 100}[r.IntN(4)]
	lost := make(chan struct{})
	survival := rand.New(rand.NewPCG(r.Uint64(), 1))
	d.lose = func() {
		h.atCrash = h.acked.Load() // before the clone: what is acknowledged later may be missing
		after = d.crashed(survival, unsynced)
		close(lost)
	}
	d.mu.Lock()
	d.budget = r.IntN(20_000)
	d.mu.Unlock()
	if r.IntN(2) == 0 {
		defer d.fill(rand.New(rand.NewPCG(r.Uint64(), 2)))()
	}
	for {
		n := 1
		var release func()
		if r.IntN(4) == 0 {
			n, release = 2+r.IntN(3), s.Hold()
		}
		for i := range n {
			record++
			if r.IntN(10) == 0 {
				h.entity(s, r, record, i == n-1)
				continue
			}
			h.step(s, r, record, i == n-1)
		}
		if release != nil {
			release()
		}
		steps := int64(len(h.states) - 1)
		if r.IntN(3) == 0 {
			s.After(func(err error) {
				if err == nil {
					h.acked.Store(steps)
				}
			})
		}
		if r.IntN(5) == 0 {
			if err := s.Wait(); err != nil && !errors.Is(err, queue.ErrNoRoom) {
				t.Fatal(err)
			}
		}
		awaitRoom(s)
		select {
		case <-lost:
			d.set(nil, nil)
			awaitRoom(s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return h, after, record
		default:
		}
	}
}

// awaitRoom returns when the disk is not full. Until then the broker refuses what clients ask for.
func awaitRoom(s *Store) {
	for s.Trouble() != nil {
		time.Sleep(testInterval)
	}
}

// step adds a message, and changes or removes another. Now and then it sets or clears the state of a
// session, remembers a message-id, and forgets some. A message has the key "queue record", a state
// "s queue session", a message-id "i queue time".
func (h *history) step(s *Store, r *rand.Rand, record int64, whole bool) {
	id := uint32(1 + r.IntN(2))
	state := map[string]string{}
	others := []int64{}
	for k, v := range h.states[len(h.states)-1] {
		state[k] = v
		var q uint32
		var other int64
		if _, err := fmt.Sscan(k, &q, &other); err == nil && q == id {
			others = append(others, other)
		}
	}
	key := func(record int64) string { return fmt.Sprint(id, " ", record) }
	body := make([]byte, r.IntN(400))
	step := added(record, queue.Stored{View: queue.View{Message: queue.Message{Body: body}}})
	state[key(record)] = fmt.Sprint(len(body), " 0")
	if len(others) > 0 {
		other := others[r.IntN(len(others))]
		c := queue.Change{Fate: queue.Removed, Record: other}
		if r.IntN(2) == 0 {
			var size, count int
			fmt.Sscan(state[key(other)], &size, &count) //nolint:errcheck // written above
			c.Fate, c.DeliveryCount = queue.Changed, count+1
			state[key(other)] = fmt.Sprint(size, " ", count+1)
		} else {
			delete(state, key(other))
		}
		step.Changes = append(step.Changes, c)
	}
	step.Changes = append(step.Changes, beside(state, r, id, record)...)
	h.states, h.whole = append(h.states, state), append(h.whole, whole)
	s.Queue(id).Append(step)
}

// beside is changes of what is no message, made in state, too.
func beside(state map[string]string, r *rand.Rand, id uint32, now int64) (changes []queue.Change) {
	if r.IntN(3) == 0 {
		session := []string{"", "a", "b"}[r.IntN(3)]
		text := []string{"", fmt.Sprint("since ", now)}[r.IntN(2)]
		key := fmt.Sprint("s ", id, " ", session)
		if delete(state, key); text != "" {
			state[key] = text
		}
		c := queue.Change{Fate: queue.StateSet}
		c.SessionID, c.Body, c.EnqueuedTime = session, []byte(text), time.UnixMicro(now)
		changes = append(changes, c)
	}
	if r.IntN(2) == 0 {
		state[fmt.Sprint("i ", id, " ", now)] = "id"
		c := queue.Change{Fate: queue.IDSent}
		c.MessageID, c.EnqueuedTime = "id", time.UnixMicro(now)
		changes = append(changes, c)
	}
	if r.IntN(8) == 0 {
		before := now - r.Int64N(20)
		for k := range state {
			var of uint32
			var at int64
			if _, err := fmt.Sscanf(k, "i %d %d", &of, &at); err == nil && of == id && at < before {
				delete(state, k)
			}
		}
		c := queue.Change{Fate: queue.IDsExpired}
		c.EnqueuedTime = time.UnixMicro(before)
		changes = append(changes, c)
	}
	return changes
}

// check finds the step up to which the directory on d has the history, and returns its messages.
func (h *history) check(t *testing.T, d *disk) map[string]string {
	t.Helper()
	s := openOn(t, d)
	found := map[string]string{}
	findEntities(t, s, found)
	for id := uint32(1); id <= 2; id++ {
		all, last := messagesOf(t, s, id)
		for _, c := range all {
			switch c.Fate {
			case queue.StateSet:
				found[fmt.Sprint("s ", id, " ", c.SessionID)] = string(c.Body)
				continue
			case queue.IDSent:
				found[fmt.Sprint("i ", id, " ", c.EnqueuedTime.UnixMicro())] = c.MessageID
				continue
			}
			found[fmt.Sprint(id, " ", c.Record)] = fmt.Sprint(len(c.Body), " ", c.DeliveryCount)
			if c.Record > last {
				t.Errorf("queue %d has record %d, and its last number is %d", id, c.Record, last)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i := h.atCrash; i < int64(len(h.states)); i++ {
		if h.whole[i] && gocmp.Equal(h.states[i], found) {
			return found
		}
	}
	t.Fatalf("after a crash, with %d of %d steps acknowledged, the directory has no state from there on:\n%v",
		h.atCrash, len(h.states)-1, gocmp.Diff(h.states[h.atCrash], found))
	return nil
}

func TestCrashOfADirectoryThatIsBeingMade(t *testing.T) {
	for budget := 0; ; budget += 3 { // a third of the bytes, in all places
		d := newDisk()
		var after *disk
		d.lose = func() { after = d.crashed(rand.New(rand.NewPCG(uint64(budget), 2)), 50) }
		d.budget = budget
		if err := openOn(t, d).Close(); err != nil {
			t.Fatal(err)
		}
		if after == nil {
			return // all bytes of it had their turn
		}
		s := openOn(t, after)
		s.Queue(1).Append(added(1, whole()))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
