// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// called gets the result of a ticket.
type called chan error

func (c called) Scheduled(err error) { c <- err }

// ask is one send of a message with that time to live, whose stamp lies between from and until.
func ask(s *Scheduler, life time.Duration, from, until time.Time) called {
	done := make(called, 1)
	s.Start(Companion{Entity: "orders", Findable: true, References: []Reference{
		{MessageID: "m", Sent: from, From: from, Until: until, Within: life, Deadline: from.Add(life), Stated: "ttl"},
	}}, done)
	return done
}

func slotScene(t *testing.T, f func(t *testing.T, s *Scheduler, left func() []Companion)) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "monitor"}} })
		s, err := New(Config{MonitorQueue: "monitor", Links: ns.Links(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(t.Context()) }()
		ns.Net.Delay(pipenet.ToListener, time.Millisecond) // a transfer takes longer than asking, whatever the machine is busy with
		q, _ := ns.Broker.Queue("monitor")
		f(t, s, func() (cs []Companion) {
			for _, v := range brokertest.Seen(q.Peek(nil, 0, 10_000)) {
				c, err := ParseCompanion(bodyOf(t, v.Body))
				if err != nil {
					t.Fatal(err)
				}
				if !v.ScheduledEnqueueTime.Equal(slotDue(c.SlotEnd)) {
					t.Errorf("slot that ends at %v is due at %v", c.SlotEnd, v.ScheduledEnqueueTime)
				}
				cs = append(cs, c)
			}
			return cs
		})
	})
}

// bodyOf is what a message carries.
func bodyOf(t *testing.T, message []byte) (b []byte) {
	t.Helper()
	m, err := amqp.ParseMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	for part, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// However many messages come, there is one companion for each slot that their stamps can put them
// in; and a message whose slots are covered waits for nothing.
func TestASlotStandsForAllThatExpireInIt(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, left func() []Companion) {
		start := time.Now().Truncate(slot)
		for i := range 500 {
			from := start.Add(time.Duration(i) * time.Millisecond / 5) // 100 ms in all
			if err := <-ask(s, time.Minute, from, from.Add(slot/2)); err != nil {
				t.Fatal(err)
			}
		}
		var registeredSlot int
		first, last := numberOf(start.Add(time.Minute)), numberOf(start.Add(time.Minute+499*time.Millisecond/5+slot/2))
		seen := map[int64]bool{}
		for _, c := range left() {
			seen[numberOf(c.SlotEnd)] = true
			registeredSlot++
		}
		for n := first; n <= last; n++ {
			if !seen[n] {
				t.Errorf("slot %d of %d to %d has no companion", n, first, last)
			}
		}
		if want := int(last - first + 1); registeredSlot != want {
			t.Errorf("%d companions, want %d", registeredSlot, want)
		}
		again := ask(s, time.Minute, start, start.Add(slot/2))
		select {
		case err := <-again:
			if err != nil {
				t.Errorf("a covered message: %v", err)
			}
		default:
			t.Error("a message whose slots are covered waits")
		}
	})
}

// The broker cuts its stamps to milliseconds. So the deadline that follows from the stamp may lie in
// the slot before the one that the instant of the send leads to.
func TestASlotIsCoveredIntoWhichTheCutStampPutsAMessage(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, left func() []Companion) {
		start := time.Now().Truncate(slot).Add(slot)
		if err := <-ask(s, time.Minute, start.Add(900*time.Microsecond), start.Add(slot/2)); err != nil {
			t.Fatal(err)
		}
		stamp := start // 900 µs after it, cut
		for _, c := range left() {
			if deadline := stamp.Add(time.Minute); deadline.After(c.SlotStart()) && !deadline.After(c.SlotEnd) {
				return
			}
		}
		t.Errorf("no companion stands for the deadline of a message with the stamp %v: %v", stamp, left())
	})
}

// Those that ask for the same slot at once share its companion, and those with other times to live
// share the message.
func TestSlotsOfOneInstantAreOneCompanion(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, left func() []Companion) {
		at := time.Now().Truncate(slot).Add(time.Millisecond)
		var all []called
		for i := range maxTransfers { // as many as may be in flight, so that the others wait for one transfer
			all = append(all, ask(s, time.Duration(i+1)*time.Hour, at, at))
			synctest.Wait()
		}
		for i := range 10 {
			life := time.Minute + time.Duration(i%2)*time.Second
			// Different times to live, and one slot: the stamps differ by as much.
			all = append(all, ask(s, life, at.Add(time.Minute-life), at.Add(time.Minute-life)))
		}
		for _, c := range all {
			if err := <-c; err != nil {
				t.Fatal(err)
			}
		}
		cs := left()
		var shared int
		for _, c := range cs {
			shared += len(c.Lives) - 1
		}
		if len(cs) != maxTransfers+1 || shared != 1 {
			t.Errorf("companions: %+v, want %d with one time to live and one with two", cs, maxTransfers)
		}
	})
}

// The monitor cannot read a default time to live from the messages once it has changed: their slots
// say that they had it.
func TestASlotSaysThatItsTimeToLiveWasTheDefault(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, left func() []Companion) {
		at := time.Now().Truncate(slot).Add(time.Millisecond)
		for _, stated := range []string{"default", "ttl"} {
			done := make(called, 1)
			s.Start(Companion{Entity: "orders", Findable: true, References: []Reference{
				{MessageID: "m", Sent: at, From: at, Until: at, Within: time.Minute, Deadline: at.Add(time.Minute), Stated: stated},
			}}, done)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		cs, lives := left(), []time.Duration{time.Minute}
		if len(cs) != 2 || !slices.Equal(cs[0].Defaults, lives) || !slices.Equal(cs[0].Lives, lives) || cs[1].Defaults != nil || !slices.Equal(cs[1].Lives, lives) {
			t.Errorf("companions: %+v, want one of a default and one of a stated time to live", cs)
		}
	})
}

// A slot whose companion could not be written is tried again, and its callers get the error.
func TestASlotThatFailedIsAskedForAgain(t *testing.T) {
	s := &Scheduler{clock: newClock(), closed: true, lanes: []*lane{{}}}
	at := time.Now()
	for range 2 {
		if err := <-ask(s, time.Minute, at, at); !errors.Is(err, ErrClosed) {
			t.Errorf("Start on a closed scheduler: %v, want ErrClosed", err)
		}
	}
	if c := s.slots.series[seriesKey{entity: "orders", life: time.Minute}]; len(c.slots) != 0 {
		t.Errorf("%d slots count as covered", len(c.slots))
	}
}

// The registry does not grow with the deadlines that are outstanding.
func TestCoveredSlotsAreForgotten(t *testing.T) {
	s := &Scheduler{clock: newClock()}
	at := time.Now()
	for range 100_000 {
		at = at.Add(slot)
		r := Reference{Within: time.Hour, From: at, Until: at, Stated: "ttl"}
		_, missing := s.slots.await(&ticket{c: Companion{Entity: "orders"}}, &r, false)
		for _, m := range missing {
			m.durable = true
		}
	}
	remembered := 0
	for _, c := range s.slots.series {
		remembered += len(c.slots)
	}
	if most := int((2*spanWidth+time.Second)/slot) + 2; remembered > most {
		t.Errorf("%d slots are remembered, want at most %d, of those that a send can ask for", remembered, most)
	}
}

func TestSlotsPayFromARateOn(t *testing.T) {
	s := &Scheduler{clock: newClock()}
	now := Instant{Time: time.Unix(1000, 0), Measured: true}
	lives := []time.Duration{time.Minute}
	pays := func(rate int) (n int) {
		for range 3 {
			now.Time = now.Time.Add(time.Second)
			for range rate {
				if s.Pays("orders", lives, now) {
					n++
				}
			}
		}
		return n
	}
	if n := pays(50); n != 0 {
		t.Errorf("at 50 messages per second slots are taken %d times", n)
	}
	if n := pays(200); n < 450 {
		t.Errorf("at 200 messages per second slots are taken for %d of 600", n)
	}
	now.Uncertainty = slotClock
	if !s.Pays("orders", lives, now) {
		t.Errorf("slots are not taken with a clock that is known to within %v", slotClock)
	}
	now.Uncertainty = slotClock + 1
	if s.Pays("orders", lives, now) {
		t.Error("slots are taken though the clock is hardly known")
	}
	now.Uncertainty, now.Measured = 0, false
	if s.Pays("orders", lives, now) {
		t.Error("slots are taken though the clock is not known")
	}
	s.cfg.Companions, now.Measured = companionsEach, true
	if s.Pays("orders", lives, now) {
		t.Error("slots are taken though none are wanted")
	}
	if s.Pays("orders", []time.Duration{time.Minute, time.Hour}, now) {
		t.Error("slots are taken for two times to live at once")
	}
}

// Where each message has a time to live of its own, those that are less than five seconds apart
// share slots. They do once they are many together, and for a while after that.
func TestSlotsStandForSimilarTimesToLive(t *testing.T) {
	s := &Scheduler{clock: newClock()}
	now := Instant{Time: time.Unix(1000, 0), Measured: true}
	pays := func(seconds, rate int) (n int) {
		for range seconds {
			now.Time = now.Time.Add(time.Second)
			for i := range rate {
				if s.Pays("orders", []time.Duration{5*time.Second + time.Duration(i)*time.Millisecond}, now) {
					n++
				}
			}
		}
		return n
	}
	if n := pays(3, 400); n != 0 {
		t.Errorf("at 400 messages per second slots are taken %d times", n)
	}
	if n := pays(3, 2000); n < 4900 {
		t.Errorf("at 2000 messages per second slots are taken for %d of 6000", n)
	}
	if n := pays(5, 10); n != 50 {
		t.Errorf("right after that slots are taken for %d of 50", n)
	}
	if n := pays(3, 10); n > 10 {
		t.Errorf("later slots are taken for %d of 30", n)
	}
	mixed := []time.Duration{7 * time.Second, time.Hour}
	pays(1, 2000)
	if s.Pays("orders", mixed, now) {
		t.Error("slots are taken for two messages, one of which comes seldom")
	}
	if !s.Pays("orders", append(mixed, 8*time.Second), now) {
		t.Error("slots are not taken for three messages, one of which comes seldom")
	}
}

// One companion is enough for a slot and a span, whatever the times to live.
func TestASlotStandsForASpan(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, left func() []Companion) {
		from := time.Now().Truncate(slot).Add(time.Millisecond)
		var refs []Reference
		for i := range 90 { // over 450 ms: five slots
			life := 5*time.Second + time.Duration(5*i)*time.Millisecond
			refs = append(refs, Reference{MessageID: "m", Sent: from, From: from, Until: from, Within: life, Deadline: from.Add(life), Stated: "ttl"})
		}
		for range 3 {
			done := make(called, 1)
			s.Start(Companion{Entity: "orders", Findable: true, References: refs}, done)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		cs := left()
		if len(cs) != 5 {
			t.Fatalf("%d companions, want 5", len(cs))
		}
		for _, r := range refs {
			if !slices.ContainsFunc(cs, func(c Companion) bool {
				return c.StandsFor(r.Within) && r.Deadline.After(c.SlotStart()) && !r.Deadline.After(c.SlotEnd)
			}) {
				t.Errorf("none stands for a time to live of %v", r.Within)
			}
		}
	})
}

func TestSlotCompanionsAreChecked(t *testing.T) {
	good := Companion{Entity: "orders", SlotEnd: time.Unix(1000, 0).UTC(), Lives: []time.Duration{time.Minute, time.Hour},
		Spans: []span{{time.Millisecond, time.Millisecond}, {5 * time.Second, 9999 * time.Millisecond}}}
	body, _, err := good.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var w wireCompanion
	if err := json.Unmarshal(body, &w); err != nil {
		t.Fatal(err)
	}
	if c, err := ParseCompanion(body); err != nil || !c.SlotEnd.Equal(good.SlotEnd) || len(c.Lives) != 2 || c.Lives[1] != time.Hour || !slices.Equal(c.Spans, good.Spans) {
		t.Errorf("ParseCompanion(%s) = %+v, %v", body, c, err)
	}
	for _, bad := range []string{
		`{"version":1,"kind":"slot","entity":"q"}`,
		`{"version":1,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z"}`,
		`{"version":1,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","livesMs":[0]}`,
		`{"version":1,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","livesMs":[-5]}`,
		`{"version":1,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","livesMs":[9223372036854775807]}`,
		`{"version":2,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","spansMs":[]}`,
		`{"version":2,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","spansMs":[[0,5]]}`,
		`{"version":2,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","spansMs":[[5,4]]}`,
		`{"version":2,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","spansMs":[[1,60002]]}`,
		`{"version":2,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","spansMs":[[9223372036854775800,9223372036854775807]]}`,
		`{"version":1,"kind":"slot","entity":"q","slotEnd":"2026-01-01T00:00:00Z","livesMs":[5],"references":[{"messageId":"m"}]}`,
	} {
		if c, err := ParseCompanion([]byte(bad)); err == nil {
			t.Errorf("ParseCompanion(%s) = %+v, want an error", bad, c)
		}
	}
}

// The known time of the broker loses precision. While slots pay, the scheduler measures the clock
// again before it is too imprecise for them, and no more often than necessary.
func TestSlotsDoNotEndWithTheMeasurementOfTheClock(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, _ func() []Companion) {
		measure := func() {
			t.Helper()
			if err := s.MeasureClock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		measure()
		lives := slices.Repeat([]time.Duration{time.Minute}, 20) // ten times a second
		minutes := func(n int, answer bool) (asked, taken int) {
			for range 600 * n {
				time.Sleep(100 * time.Millisecond)
				if s.Pays("orders", lives, s.Now()) {
					taken++
				}
				select {
				case <-s.Blurred():
					if asked++; answer {
						measure()
					}
				default:
				}
			}
			return asked, taken
		}
		if asked, taken := minutes(10, true); taken < 5990 || asked < 20 || asked > 40 {
			t.Errorf("in ten minutes slots were taken %d times of 6000, after %d measurements, want always, and some 25 to 30", taken, asked)
		}
		if asked, taken := minutes(10, false); taken > 600 || asked < 10 || asked > 40 {
			t.Errorf("with a clock that nobody measures slots were taken %d times of 6000, and it was asked for %d times", taken, asked)
		}
	})
}
