// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"overdue/internal/broker/quirk"
)

// A memoryLog is a Log that forgets nothing but what is removed.
type memoryLog struct {
	t        interface{ Errorf(string, ...any) }
	last     int64
	messages map[int64]Stored
	states   map[string]sessionState
	sent     []remembered
	steps    int
	sizes    []int // changes of each step

	limit    int      // of inMemory
	inMemory int      // bytes of contents that Keep has allowed
	onDisk   []func() // see sync
	failure  error    // of Read
	reading  func()   // called by Read; nil: nothing happens meanwhile
}

func newMemoryLog(t interface{ Errorf(string, ...any) }) *memoryLog {
	return &memoryLog{t: t, messages: map[int64]Stored{}, states: map[string]sessionState{}}
}

// sync says that what was appended is on disk.
func (l *memoryLog) sync() {
	fs := l.onDisk
	l.onDisk = nil
	for _, f := range fs {
		f()
	}
}

func (l *memoryLog) Keep(bytes int) bool {
	if bytes > 0 && l.inMemory+bytes > l.limit {
		return false
	}
	l.inMemory += bytes
	return true
}

func (l *memoryLog) Read(records []int64, each func(record int64, c Content)) error {
	if l.reading != nil {
		l.reading()
	}
	for _, record := range records {
		if m, has := l.messages[record]; has && l.failure == nil {
			each(record, Content{m.MessageID, m.Body})
		}
	}
	return l.failure
}

func (l *memoryLog) Append(s *Step) {
	l.steps++
	if s.OnDisk != nil {
		l.onDisk = append(l.onDisk, s.OnDisk)
	}
	l.sizes = append(l.sizes, len(s.Changes))
	if s.Last > 0 {
		if arrival(s.Last) < arrival(l.last) {
			l.t.Errorf("the last number falls from %d to %d", l.last, s.Last)
		}
		l.last = s.Last
	}
	for _, c := range s.Changes {
		if l.isOther(&c) {
			continue
		}
		was, known := l.messages[c.Record]
		if known == (c.Fate == Added) {
			l.t.Errorf("record %d is known: %v, and its fate is %d", c.Record, known, c.Fate)
		}
		if c.Fate == Removed {
			delete(l.messages, c.Record)
			continue
		}
		if c.Fate == Changed { // a store keeps the content as it came
			c.Body, c.MessageID, c.SessionID = was.Body, was.MessageID, was.SessionID
			c.TTL, c.ScheduledEnqueueTime = was.TTL, was.ScheduledEnqueueTime
			c.EnqueuedSequenceNumber, c.Hops, c.DeadLetterSource = was.EnqueuedSequenceNumber, was.Hops, was.DeadLetterSource
		}
		c.Locked, c.LockedUntil = false, time.Time{}
		l.messages[c.Record] = c.Stored
	}
}

// isOther keeps a change that is not of a message.
func (l *memoryLog) isOther(c *Change) bool {
	at := instantOf(c.EnqueuedTime)
	switch c.Fate {
	case StateSet:
		if delete(l.states, c.SessionID); len(c.Body) > 0 {
			l.states[c.SessionID] = sessionState{c.Body, at}
		}
	case IDSent:
		l.sent = append(l.sent, remembered{c.MessageID, at})
	case IDsExpired:
		l.sent = slices.DeleteFunc(l.sent, func(r remembered) bool { return r.at < at })
	default:
		return false
	}
	return true
}

// restore makes a queue of what the log has.
func (l *memoryLog) restore(t interface{ Fatalf(string, ...any) }, cfg Config) *Queue {
	q := New(cfg)
	for id, s := range l.states {
		c := Change{Fate: StateSet}
		c.SessionID, c.Body, c.EnqueuedTime = id, s.data, s.updatedAt.time()
		q.Restore(&c)
	}
	slices.SortFunc(l.sent, func(a, b remembered) int { return cmp.Compare(a.at, b.at) })
	for _, r := range l.sent {
		c := Change{Fate: IDSent}
		c.MessageID, c.EnqueuedTime = r.key, r.at.time()
		q.Restore(&c)
	}
	for _, record := range slices.Sorted(maps.Keys(l.messages)) {
		c := Change{Record: record, Stored: l.messages[record]}
		if cfg.Log != nil { // which has the content
			c.MessageID, c.Body = "", nil
		}
		q.Restore(&c)
	}
	if err := q.Resume(l.last); err != nil {
		t.Fatalf("Resume = %v", err)
	}
	return q
}

// compare looks whether the log has what the queue has, and whether a restart brings it back.
func (l *memoryLog) compare(t *rapid.T, q *Queue) {
	t.Helper()
	got := map[int64]Stored{}
	for _, part := range []*Queue{q, q.dead} {
		part.entries.byNumber.ascend(-1<<63, func(e *entry) bool {
			if e.kept&keptRemoved != 0 {
				return true
			}
			s := part.entries.stored(e)
			s.Locked, s.LockedUntil = false, time.Time{}
			if e.away() {
				s.MessageID, s.Body = l.messages[e.record.int64()].MessageID, l.messages[e.record.int64()].Body
			}
			if size := len(s.MessageID) + len(s.Body); size != s.ContentSize {
				t.Fatalf("the content of record %d has %d bytes, want %d", e.record.int64(), size, s.ContentSize)
			}
			got[e.record.int64()] = s
			return true
		})
	}
	if diff := gocmp.Diff(got, l.messages, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the log differs from the queue (-queue +log):\n%s", diff)
	}
	if l.last != q.numbers.position() {
		t.Fatalf("the log has the last number %#x, the queue %#x", l.last, q.numbers.position())
	}
	if diff := gocmp.Diff(q.sessions.states(), l.states, gocmp.AllowUnexported(sessionState{})); diff != "" {
		t.Fatalf("the states of sessions differ (-queue +log):\n%s", diff)
	}
	l.compareSent(t, &q.intake.history)
	l.compareMemory(t, q)
	if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
		l.compareRestart(t, q)
	}
}

// compareMemory looks at what the queue keeps in memory, once all is on disk.
func (l *memoryLog) compareMemory(t *rapid.T, q *Queue) {
	t.Helper()
	inUse := 0
	for _, part := range []*Queue{q, q.dead} {
		part.entries.byNumber.ascend(-1<<63, func(e *entry) bool {
			if e.kept&keptInUse != 0 {
				inUse += int(e.contentSize)
			}
			if len(l.onDisk) == 0 && e.kept&(keptInUse|keptLogged|keptAgain) == keptLogged && e.contentSize > 0 && !e.away() {
				t.Fatalf("record %d is on disk, and in memory", e.record.int64())
			}
			return true
		})
	}
	if sum := q.changes.inUse + q.dead.changes.inUse; l.inMemory != inUse || sum != inUse || inUse > l.limit {
		t.Fatalf("contents of %d bytes are in memory, the queues count %d, and the log %d of at most %d", inUse, sum, l.inMemory, l.limit)
	}
}

// compareSent compares what h remembers and has not ended. Of what has, either may have more.
func (l *memoryLog) compareSent(t *rapid.T, h *history) {
	t.Helper()
	now := instantOf(h.cfg.Now())
	lasting := func(ids []remembered) (keys []string) {
		for _, r := range ids {
			if h.end(r.at) > now {
				keys = append(keys, fmt.Sprint(r))
			}
		}
		slices.Sort(keys)
		return keys
	}
	if diff := gocmp.Diff(lasting(h.line[h.head:]), lasting(l.sent)); diff != "" {
		t.Fatalf("the message-ids differ (-queue +log):\n%s", diff)
	}
}

// states is the states of all sessions.
func (ss *Sessions) states() map[string]sessionState {
	all := map[string]sessionState{}
	if ss != nil {
		for id, s := range ss.byID {
			if s.state != nil {
				all[id] = *s.state
			}
		}
	}
	return all
}

func (l *memoryLog) compareRestart(t *rapid.T, q *Queue) {
	t.Helper()
	cfg := q.cfg.Config
	copied := *l
	copied.messages, copied.states, copied.sent = maps.Clone(l.messages), maps.Clone(l.states), slices.Clone(l.sent)
	cfg.Log = &copied
	again := l.restore(t, cfg)
	defer again.Close()
	now := instantOf(cfg.Now())
	for _, m := range l.messages {
		if m.State == Scheduled && instantOf(m.ScheduledEnqueueTime) <= now {
			return // a transaction has kept it from its activation, which a restart makes up for
		}
	}
	var want, dead []View
	for _, m := range l.messages {
		v, kept := m.View, true
		if m.Delivered && !m.Dead {
			v.DeliveryCount++
		}
		if !m.Dead && (m.Delivered || cfg.Expiry == Eager && m.State == Active) {
			m.Dead, kept = givenBack(&v, m.Delivered, cfg, now)
		}
		switch {
		case m.Dead:
			dead = append(dead, v)
		case kept:
			want = append(want, v)
		}
	}
	byNumber := func(a, b View) int { return cmp.Compare(a.SequenceNumber, b.SequenceNumber) }
	slices.SortFunc(want, byNumber)
	slices.SortFunc(dead, byNumber)
	if diff := gocmp.Diff(want, seen(again.Peek(nil, -1, len(want)+10)), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("after a restart (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(dead, seen(again.DeadLetterQueue().Peek(nil, -1, len(dead)+10)), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("dead letters after a restart (-want +got):\n%s", diff)
	}
	if again.numbers.position() != q.numbers.position() {
		t.Fatalf("after a restart the numbers stand at %#x, want %#x", again.numbers.position(), q.numbers.position())
	}
	if diff := gocmp.Diff(l.states, again.sessions.states(), gocmp.AllowUnexported(sessionState{})); diff != "" {
		t.Fatalf("states of sessions after a restart (-want +got):\n%s", diff)
	}
	l.compareSent(t, &again.intake.history)
	if got, want := again.quota.Used(), again.Counts().Size+again.intake.history.size; got != want {
		t.Fatalf("after a restart %d bytes are held, want %d", got, want)
	}
	again.check(t)
	again.dead.check(t)
}

// givenBack is what becomes of a message whose last delivery may have failed.
func givenBack(v *View, failed bool, cfg Config, now instant) (dead, kept bool) {
	switch {
	case !v.ExpiresAt.IsZero() && instantOf(v.ExpiresAt) <= now:
		if !cfg.DeadLetteringOnMessageExpiration {
			return false, false
		}
		v.DeadLetterReason, v.DeadLetterErrorDescription = ReasonExpired, descriptionExpired
	case failed && v.DeliveryCount >= cfg.MaxDeliveryCount:
		v.DeadLetterReason = ReasonMaxDelivery
		v.DeadLetterErrorDescription = (&locks{cfg: &settings{Config: cfg}}).maxDeliveryDescription()
	default:
		return false, true
	}
	v.State, v.DeadLetteredTime = Active, now.time()
	return true, true
}

func TestDeadLetteringIsOneStep(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log})
	defer q.Close()
	send(t, q, text("a"), text("b"))
	c := q.NewConsumer(PeekLock)
	ds := receive(c, 2)
	before := log.steps
	if errs := q.Settle(Settlement{Outcome: DeadLetter, DeadLetterReason: "r"}, ds[0].LockToken, ds[1].LockToken); errs != nil {
		t.Fatal(errs)
	}
	if got := log.sizes[before:]; !slices.Equal(got, []int{2}) {
		t.Errorf("two dead-letterings come in steps of %d changes, want one of 2", got)
	}
}

func TestNumbersAreNotGivenAgainAfterARestart(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log, RequiresDuplicateDetection: true})
	defer q.Close()
	send(t, q, Message{MessageID: "a"})
	send(t, q, Message{MessageID: "a"}) // uses up a number
	if _, err := q.Reserve(true, Message{MessageID: "b"}); err != nil {
		t.Fatal(err)
	}
	again := log.restore(t, Config{})
	defer again.Close()
	if got := send(t, again, text("next")); got != 4 {
		t.Errorf("after a restart the next message has number %d, want 4", got)
	}
}

func TestNothingIsReportedThatHasNotChanged(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log})
	defer q.Close()
	send(t, q, text("a"))
	before := log.steps
	seen(q.Peek(nil, 0, 10))
	q.Counts()
	q.Wake()
	c := q.NewConsumer(PeekLock)
	c.AddCredit(1) // it lies in the outbox, and nobody has it
	c.Close()
	if log.steps != before {
		t.Errorf("%d steps without a change", log.steps-before)
	}
}

func TestDuplicateIsOneAfterARestart(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	log := newMemoryLog(t)
	cfg := Config{
		Log:                        log,
		RequiresDuplicateDetection: true,
		Now:                        func() time.Time { return now },
	}
	q := New(cfg)
	defer q.Close()
	before := log.steps
	send(t, q, named("a", "first"))
	if log.steps != before+1 || len(log.sent) != 1 {
		t.Errorf("a send takes %d steps and %d ids are kept, want 1 and 1", log.steps-before, len(log.sent))
	}
	now = now.Add(5 * time.Minute)
	send(t, q, named("b", "second"))
	again := log.restore(t, cfg)
	defer again.Close()
	send(t, again, named("a", "third"), named("b", "fourth"))
	now = now.Add(5 * time.Minute) // ten since the first a, five since b
	send(t, again, named("a", "fifth"), named("b", "sixth"))
	wantBodies(t, "peek", seen(again.Peek(nil, 0, 10)), "first", "second", "fifth")
}

func TestIDsThatWereRefusedAreNotReported(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log, RequiresDuplicateDetection: true, Shared: NewQuota(1)})
	defer q.Close()
	if _, err := q.Send(named("a", "too large")); !errors.Is(err, ErrFull) {
		t.Fatalf("Send = %v, want ErrFull", err)
	}
	if log.steps != 0 {
		t.Errorf("%d steps of a send that was refused", log.steps)
	}
}

// The log keeps at most an eighth of a window more than the queue, and nothing once all has ended.
func TestHistoryOfTheLogIsForgotten(t *testing.T) {
	const n, window = 3000, time.Minute
	log := newMemoryLog(t)
	cfg := Config{RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: window}
	cfg.Log = log
	alone(t, cfg, func(t *testing.T, q *Queue) {
		keptIDs := func() int { // the queue's timer writes to the log, too
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(log.sent)
		}
		c := q.NewConsumer(ReceiveAndDelete)
		c.AddCredit(n)
		trims := 0
		for i := range n {
			kept := keptIDs()
			send(t, q, named(fmt.Sprint(i), ""))
			if keptIDs() < kept {
				trims++
			}
			c.Take(nil)
			time.Sleep(window / 100)
		}
		if got, most := keptIDs(), 100+100/trimsPerWindow+1; got > most {
			t.Errorf("the log keeps %d ids, want at most %d", got, most)
		}
		if most := n / 100 * trimsPerWindow; trims > most {
			t.Errorf("the log was trimmed %d times, want at most %d", trims, most)
		}
		time.Sleep(2 * window)
		synctest.Wait()
		if left := keptIDs(); left > 0 {
			t.Errorf("when all has ended, the log keeps %d ids", left)
		}
	})
}

func TestStateOfASessionIsThereAfterARestart(t *testing.T) {
	log := newMemoryLog(t)
	cfg := Config{RequiresSession: true, Log: log}
	q := New(cfg)
	defer q.Close()
	for _, id := range []string{"kept", "cleared"} {
		accept(t, q, id)
		must(t, q.Sessions().SetState(id, []byte("state of "+id)))
	}
	must(t, q.Sessions().SetState("cleared", nil))
	again := log.restore(t, cfg)
	defer again.Close()
	if ids := again.Sessions().List(time.Time{}, 0, 10); !slices.Equal(ids, []string{"kept"}) {
		t.Errorf("after a restart there are the sessions %q, want the one with a state", ids)
	}
	accept(t, again, "kept")
	if state, err := again.Sessions().State("kept"); err != nil || string(state) != "state of kept" {
		t.Errorf("its state is %q, %v", state, err)
	}
}

func TestPartitionsTakeTurnsAcrossARestart(t *testing.T) {
	log := newMemoryLog(t)
	cfg := Config{Partitioned: true, Log: log}
	q := New(cfg)
	defer q.Close()
	for range Partitions + 3 {
		send(t, q, text("m"))
	}
	send(t, q, Message{PartitionKey: "k"}) // takes no turn
	again := log.restore(t, cfg)
	defer again.Close()
	if got, want := send(t, again, text("next")), int64(4)<<partitionShift|(Partitions+5); got != want {
		t.Errorf("the next number is %#x, want %#x", got, want)
	}
}

func TestDeadLettersThatWereRenumberedKeepTheirNumbers(t *testing.T) {
	log := newMemoryLog(t)
	cfg := Config{Log: log, Quirks: quirk.DeadLettersRenumbered}
	deadLetter := func(q *Queue, body string) {
		send(t, q, text(body))
		must(t, q.DeadLetter(receive(q.NewConsumer(PeekLock), 1)[0].LockToken, "r", "d"))
	}
	q := New(cfg)
	defer q.Close()
	deadLetter(q, "a")
	deadLetter(q, "b")
	again := log.restore(t, cfg)
	defer again.Close()
	deadLetter(again, "c")
	wantBodies(t, "dead letters", seen(again.DeadLetterQueue().Peek(nil, 0, 10)), "a", "b", "c")
}
