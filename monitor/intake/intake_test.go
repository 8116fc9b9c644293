// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/scheduler"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

type clock struct{}

func (clock) Observe(time.Time) {}
func (clock) Now() time.Time    { return time.Now() }
func (clock) Latest() time.Time { return time.Now() }

// settled is an item that keeps what became of it.
type settled struct {
	how  []string
	fail error
}

func (s *settled) letGo() { s.how = append(s.how, "let go") }

func (s *settled) complete(context.Context) error {
	s.how = append(s.how, "completed")
	return s.fail
}

func (s *settled) handBack(context.Context) error {
	s.how = append(s.how, "handed back")
	return s.fail
}

func (s *settled) deadLetter(_ context.Context, reason, _ string) error {
	s.how = append(s.how, reason)
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
	if _, err := in.takeRoom(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	h := in.Open(t.Context(), &Lease{Body: body, in: in, item: s})
	if h != nil {
		h.Add(n)
	}
	return h
}

func TestACompanionIsSettledWhenItsLastWatchHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Companion)
		fail error
		want []string
	}{
		"done":        {func(h *Companion) { h.Done(t.Context(), nil) }, nil, []string{"let go", "completed"}},
		"not settled": {func(h *Companion) { h.Done(t.Context(), nil) }, errors.New("gone"), []string{"let go", "completed"}},
		"refused":     {func(h *Companion) { h.Refuse(t.Context(), Undeliverable, "") }, nil, []string{"let go", Undeliverable}},
	} {
		in, outstanding := newIntake()
		s := &settled{fail: c.fail}
		h := s.open(t, in, 2)
		h.Done(t.Context(), nil)
		in.Wait()
		if len(s.how) != 0 || in.Watching() != 1 || *outstanding != 2 || len(in.room) != 1 {
			t.Errorf("%s: with one watch of two, the companion is %v, %d watched, %d outstanding, %d in hand", name, s.how, in.Watching(), *outstanding, len(in.room))
		}
		c.end(h)
		in.Wait()
		if diff := cmp.Diff(c.want, s.how); diff != "" || in.Watching() != 0 || *outstanding != 0 || len(in.room) != 0 {
			t.Errorf("%s: %d watched, %d outstanding, %d in hand, want none; -want +got:\n%s", name, in.Watching(), *outstanding, len(in.room), diff)
		}
	}
}

func TestACompanionThatCannotBeReadIsADeadLetter(t *testing.T) {
	in, outstanding := newIntake()
	s := &settled{}
	if h := s.openBody(t, in, []byte("{"), 0); h != nil {
		t.Errorf("it is open: %+v", h)
	}
	in.Wait()
	if diff := cmp.Diff([]string{"let go", Malformed}, s.how); diff != "" || *outstanding != 0 || len(in.room) != 0 {
		t.Errorf("%d outstanding, %d in hand, want none; -want +got:\n%s", *outstanding, len(in.room), diff)
	}
}

// A companion of which a part was handled must not come back as it was.
// A send that is tried again may leave its companion twice on the monitor queue. One of them has all
// that the other one has, but a slot may be that of another process, with messages of its own.
func TestACopyOfACompanionInHandIsCompletedAtOnce(t *testing.T) {
	each := scheduler.Companion{Entity: "orders", References: []scheduler.Reference{{MessageID: "m", Sent: noon, Deadline: noon, Stated: "deadline", Once: true}}}
	slot := scheduler.Companion{Entity: "orders", SlotEnd: noon, SlotLength: time.Second, Lives: []time.Duration{time.Minute}}
	repeated := scheduler.Companion{Entity: "orders", References: slices.Clone(each.References)}
	repeated.References[0].Once = false
	other := scheduler.Companion{Entity: "invoices", References: each.References}
	for name, c := range map[string]struct {
		first, second scheduler.Companion
		number        int64 // of the second; the first has 1
		queue         string
		done          bool // the first is, before the second comes
		copied        bool
	}{
		"copy":                      {each, each, 2, "q", false, true},
		"copy on another queue":     {each, each, 1, "p", false, true},
		"same one comes back":       {each, each, 1, "q", false, false},
		"first one is done":         {each, each, 2, "q", true, false},
		"other content, same id":    {each, other, 2, "q", false, false},
		"slot of another process":   {slot, slot, 2, "q", false, false},
		"send that may be repeated": {repeated, repeated, 2, "q", false, false},
		"item of a store, no copy":  {each, each, 0, "q", false, false},
	} {
		in, outstanding := newIntake()
		open := func(s *settled, c scheduler.Companion, queue string, number int64) *Companion {
			body, _, err := c.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.takeRoom(t.Context(), 1, true); err != nil {
				t.Fatal(err)
			}
			h := in.Open(t.Context(), &Lease{ID: "id", Queue: queue, Number: number, Body: body, in: in, item: s})
			if h != nil {
				h.Add(1)
			}
			return h
		}
		first, second := &settled{}, &settled{}
		a := open(first, c.first, "q", 1)
		if c.done {
			a.Done(t.Context(), nil)
			in.Wait()
		}
		held := *outstanding
		b := open(second, c.second, c.queue, c.number)
		in.Wait()
		if c.copied {
			if diff := cmp.Diff([]string{"let go", "completed"}, second.how); b != nil || diff != "" || *outstanding != held || len(in.room) != 1 {
				t.Errorf("%s: companion %v, %d outstanding, %d in hand, want that it is completed at once; -want +got:\n%s", name, b, *outstanding, len(in.room), diff)
			}
		} else if b == nil || len(second.how) != 0 {
			t.Errorf("%s: companion %v is %v, want that its messages are checked", name, b, second.how)
		}
		if !c.done && len(first.how) != 0 {
			t.Errorf("%s: the first one is %v, want that it stays in hand", name, first.how)
		}
	}
}

func TestOnlyAWholeCompanionIsHandedBack(t *testing.T) {
	in, outstanding := newIntake()
	s := &settled{}
	h := s.open(t, in, 2)
	if h.HandBack(t.Context(), 1) {
		t.Error("one of two watches hands the companion back")
	}
	if !h.HandBack(t.Context(), 2) {
		t.Error("both watches do not hand it back")
	}
	in.Wait()
	if diff := cmp.Diff([]string{"let go", "handed back"}, s.how); diff != "" || in.Watching() != 0 || *outstanding != 0 || len(in.room) != 0 {
		t.Errorf("%d watched, %d outstanding, %d in hand, want none; -want +got:\n%s", in.Watching(), *outstanding, len(in.room), diff)
	}
}

func TestRewrittenCompanionsAreJoinedWhereTheyAreDueTogether(t *testing.T) {
	at := func(entity string, after time.Duration, attempt int, missed bool) scheduler.Companion {
		r := scheduler.Reference{MessageID: "m", Sent: noon, Deadline: noon, Stated: "deadline"}
		if missed {
			r.Missed = &scheduler.Missed{SequenceNumber: 1}
		}
		return scheduler.Companion{Entity: entity, Due: noon.Add(after), Attempt: attempt, References: []scheduler.Reference{r}}
	}
	var many []scheduler.Companion
	for range mergeMost + 1 {
		many = append(many, at("orders", 0, 0, false))
	}
	for name, c := range map[string]struct {
		again []scheduler.Companion
		want  []int // references of each
	}{
		"due together":        {[]scheduler.Companion{at("orders", 0, 0, false), at("orders", mergeSpan, 0, false)}, []int{2}},
		"due apart":           {[]scheduler.Companion{at("orders", 0, 0, false), at("orders", mergeSpan+1, 0, false)}, []int{1, 1}},
		"notifications":       {[]scheduler.Companion{at("orders", 0, 0, true), at("orders", time.Hour, 0, true)}, []int{2}},
		"of two entities":     {[]scheduler.Companion{at("orders", 0, 0, false), at("bills", 0, 0, false)}, []int{1, 1}},
		"of two attempts":     {[]scheduler.Companion{at("orders", 0, 1, true), at("orders", 0, 2, true)}, []int{1, 1}},
		"more than one holds": {many, []int{mergeMost, 1}},
	} {
		var got []int
		for _, m := range merged(c.again) {
			got = append(got, len(m.References))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: references -want +got:\n%s", name, diff)
		}
	}
}

// A worker receives nothing more while too much is in hand, and goes on with half of it.
func TestAnIntakeWaitsUntilHalfIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := newIntake()
		s := &settled{}
		h := s.open(t, in, 1)
		h.Add(maxWatched)
		eased := make(chan struct{})
		go func() {
			in.awaitEase(t.Context())
			close(eased)
		}()
		synctest.Wait() // it waits
		for range maxWatched / 2 {
			h.Done(t.Context(), nil)
		}
		synctest.Wait()
		select {
		case <-eased:
			t.Fatalf("it goes on with %d messages in hand", in.Watching())
		default:
		}
		h.Done(t.Context(), nil)
		<-eased
	})
}

func TestAnIntakeIsCrowdedWhenHalfOfItsRoomIsTaken(t *testing.T) {
	in, _ := newIntake()
	for n := maxHeld/2 + creditWindow; n > 0; {
		taken, err := in.takeRoom(t.Context(), n, true)
		if err != nil {
			t.Fatal(err)
		}
		n -= taken
	}
	if in.IsCrowded() {
		t.Errorf("it is crowded with %d leases", len(in.room))
	}
	if taken, err := in.takeRoom(t.Context(), maxHeld, false); taken == 0 || err != nil || !in.IsCrowded() || len(in.room) != maxHeld {
		t.Errorf("%d more are taken, %v, so %d leases; want all that there is room for, and a crowd", taken, err, len(in.room))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if taken, err := in.takeRoom(ended, 1, true); taken != 0 || err == nil {
		t.Errorf("%d are taken without room, %v, want an error when ctx ends", taken, err)
	}
}

func TestAWorkerGivesWayOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := newIntake()
		times := 0
		for range 40 {
			in.Yield()
			if in.yields() {
				times++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if times != 4 {
			t.Errorf("it gives way %d times in four seconds, want 4", times)
		}
	})
}
