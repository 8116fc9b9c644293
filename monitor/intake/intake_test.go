// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

type clock struct{}

func (clock) Observe(time.Time) {}
func (clock) Latest() time.Time { return time.Now() }

// settled is where a lease came from. It keeps what became of it.
type settled struct {
	how  []outcome
	fail error
}

func (s *settled) settle(_ context.Context, st settlement) error {
	s.how = append(s.how, st.outcome)
	return s.fail
}

// newIntake makes an intake without monitor queues, and counts the references that are outstanding.
func newIntake() (in *Intake, outstanding *int) {
	outstanding = new(int)
	return New(Config{Clock: clock{}, Log: zap.NewNop(), Outstanding: func(_ string, n int) { *outstanding += n }}), outstanding
}

// open has a lease of a companion with n references in hand, which has a watch over each.
func (s *settled) open(t *testing.T, in *Intake, n int) *Companion {
	t.Helper()
	c := scheduler.Companion{Entity: "orders"}
	for range n {
		c.References = append(c.References, scheduler.Reference{MessageID: "m", Sent: noon, Deadline: noon, Stated: "deadline"})
	}
	body, _, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return s.openBody(t, in, body, n)
}

func (s *settled) openBody(t *testing.T, in *Intake, body []byte, n int) *Companion {
	t.Helper()
	in.held.Add(1)
	h := in.Open(t.Context(), &Lease{Body: body, in: in, settle: s.settle})
	if h != nil {
		h.Add(n)
	}
	return h
}

func TestACompanionIsSettledWhenItsLastWatchHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Companion)
		fail error
		want []outcome
	}{
		"done":        {func(h *Companion) { h.Done(t.Context(), nil) }, nil, []outcome{completed}},
		"not settled": {func(h *Companion) { h.Done(t.Context(), nil) }, errors.New("gone"), []outcome{completed}},
		"refused":     {func(h *Companion) { h.Refuse(t.Context(), Undeliverable, "") }, nil, []outcome{deadLettered}},
	} {
		in, outstanding := newIntake()
		s := &settled{fail: c.fail}
		h := s.open(t, in, 2)
		h.Done(t.Context(), nil)
		in.Wait()
		if len(s.how) != 0 || in.Watching() != 1 || *outstanding != 2 || in.held.Load() != 1 {
			t.Errorf("%s: with one watch of two, the companion is %v, %d watched, %d outstanding, %d in hand", name, s.how, in.Watching(), *outstanding, in.held.Load())
		}
		c.end(h)
		in.Wait()
		if diff := cmp.Diff(c.want, s.how); diff != "" || in.Watching() != 0 || *outstanding != 0 || in.held.Load() != 0 {
			t.Errorf("%s: %d watched, %d outstanding, %d in hand, want none; -want +got:\n%s", name, in.Watching(), *outstanding, in.held.Load(), diff)
		}
	}
}

// Of a deadline that was missed only the notification is left, so it is not outstanding.
func TestAMissedDeadlineIsNotOutstanding(t *testing.T) {
	in, outstanding := newIntake()
	c := scheduler.Companion{Entity: "orders", References: []scheduler.Reference{
		{MessageID: "m", Sent: noon, Deadline: noon, Stated: "deadline", Missed: &scheduler.Missed{SequenceNumber: 1, EnqueuedTime: noon, Deadline: noon}},
	}}
	body, _, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	h := (&settled{}).openBody(t, in, body, 1)
	if *outstanding != 0 {
		t.Errorf("%d outstanding, want none", *outstanding)
	}
	h.Done(t.Context(), nil)
	in.Wait()
	if *outstanding != 0 {
		t.Errorf("%d outstanding at the end, want none", *outstanding)
	}
}

func TestACompanionThatCannotBeReadIsADeadLetter(t *testing.T) {
	in, outstanding := newIntake()
	s := &settled{}
	if h := s.openBody(t, in, []byte("{"), 0); h != nil {
		t.Errorf("it is open: %+v", h)
	}
	in.Wait()
	if diff := cmp.Diff([]outcome{deadLettered}, s.how); diff != "" || *outstanding != 0 || in.held.Load() != 0 {
		t.Errorf("%d outstanding, %d in hand, want none; -want +got:\n%s", *outstanding, in.held.Load(), diff)
	}
}

// A companion of which a part was handled must not come back as it was.
func TestOnlyAWholeCompanionIsHandedBack(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, sc *scheduler.Scheduler) {
		part := bubble.CompanionOf("m", time.Now().Add(time.Hour))
		for name, c := range map[string]struct {
			end       func(*Companion)
			want      outcome
			scheduled int
		}{
			"all watches": {func(h *Companion) { h.HandBack(t.Context(), &part) }, handedBack, 0},
			"one of two":  {func(h *Companion) { h.Done(t.Context(), nil) }, completed, 1},
		} {
			in, outstanding := newIntake()
			in.cfg.Scheduler = sc
			before := counts(t, ns, bubble.MonitorQueue).Scheduled
			s := &settled{}
			h := s.open(t, in, 2)
			h.HandBack(t.Context(), &part)
			c.end(h)
			in.Wait()
			if diff := cmp.Diff([]outcome{c.want}, s.how); diff != "" || in.Watching() != 0 || *outstanding != 0 || in.held.Load() != 0 {
				t.Errorf("%s handed back: %d watched, %d outstanding, %d in hand, want none; -want +got:\n%s", name, in.Watching(), *outstanding, in.held.Load(), diff)
			}
			if got := counts(t, ns, bubble.MonitorQueue).Scheduled - before; got != c.scheduled {
				t.Errorf("%s handed back: %d parts are written, want %d", name, got, c.scheduled)
			}
		}
	})
}

// A message that a consumer holds must not delay the others of its companion.
func TestPartsAreWrittenWhileOtherWatchesAreOpen(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, sc *scheduler.Scheduler) {
		in, _ := newIntake()
		in.cfg.Scheduler = sc
		s := &settled{}
		h := s.open(t, in, 2)
		part := bubble.CompanionOf("m", time.Now().Add(time.Hour))
		h.Done(t.Context(), &part)
		time.Sleep(time.Second)
		if got := counts(t, ns, bubble.MonitorQueue).Scheduled; got != 1 || len(s.how) != 0 {
			t.Errorf("%d companions are written, and the first one is %v; want one, and the first one in hand", got, s.how)
		}
		h.Done(t.Context(), nil)
		in.Wait()
		if got := counts(t, ns, bubble.MonitorQueue).Scheduled; got != 1 || !cmp.Equal(s.how, []outcome{completed}) {
			t.Errorf("%d companions are written in the end, and the first one is %v; want one, and it completed", got, s.how)
		}
	})
}

// Nobody else watches the message of a part that could not be written.
func TestACompanionWhosePartIsNotWrittenComesBack(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, sc *scheduler.Scheduler) {
		in, outstanding := newIntake()
		in.cfg.Scheduler = sc
		s := &settled{}
		h := s.open(t, in, 2)
		part := bubble.CompanionOf("m", time.Now().Add(time.Hour))
		ns.Net.Stall(pipenet.Both)
		h.Done(t.Context(), &part)
		h.Refuse(t.Context(), Undeliverable, "no sink")
		in.Wait()
		if diff := cmp.Diff([]outcome{letGo}, s.how); diff != "" || in.Watching() != 0 || *outstanding != 0 || in.held.Load() != 0 {
			t.Errorf("%d watched, %d outstanding, %d in hand, want none; -want +got:\n%s", in.Watching(), *outstanding, in.held.Load(), diff)
		}
		ns.Net.Cut()
		ns.Net.Resume(pipenet.Both)
	})
}

// Companions that wait for long make room for others when there are many.
func TestWhatWaitsForLongMakesRoom(t *testing.T) {
	in, _ := newIntake()
	h := (&settled{}).open(t, in, 1)
	long := (&settled{}).open(t, in, 1)
	if long.Since = time.Now().Add(-maxHold + time.Second); long.MayWait(2 * time.Second) {
		t.Errorf("a companion may be held for more than %v", maxHold)
	}
	for wait, want := range map[time.Duration][2]bool{
		time.Second: {true, true},
		CrowdedWait: {true, false},
		maxHold / 2: {true, false},
		maxHold:     {false, false},
	} {
		in.held.Store(1)
		few := h.MayWait(wait)
		in.held.Store(maxHeld/2 + 1)
		if many := h.MayWait(wait); few != want[0] || many != want[1] {
			t.Errorf("a companion may wait %v among few: %v, among many: %v; want %v", wait, few, many, want)
		}
	}
}

// A worker asks for nothing more while it holds too many companions.
func TestAnIntakeWaitsWhileItHoldsTooManyCompanions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := newIntake()
		var held []*Companion
		for range maxHeld {
			held = append(held, (&settled{}).open(t, in, 1))
		}
		if !in.isFull() || !in.IsCrowded() {
			t.Errorf("full: %v, crowded: %v with %d companions, want both", in.isFull(), in.IsCrowded(), maxHeld)
		}
		eased := make(chan struct{})
		go func() {
			in.awaitRoom(t.Context())
			close(eased)
		}()
		synctest.Wait()
		select {
		case <-eased:
			t.Fatalf("it goes on with %d companions in hand", in.held.Load())
		default:
		}
		held[0].Done(t.Context(), nil)
		<-eased
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		in.held.Store(maxHeld)
		in.awaitRoom(ended) // it does not hold a stop up
	})
}
