// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// A scene is the lives of one seed.
type scene struct {
	t       *testing.T
	r       *rand.Rand
	base    time.Time
	sends   int            // messages that were sent
	numbers map[string]int // who had a sequence number, by entity and number
}

// A life is a broker from its start to a loss of power.
type life struct {
	*scene
	store    *Store
	disk     *disk
	ns       *brokertest.Namespace
	client   *wire
	other    *wire // for transactions, nil: not yet
	faulty   bool  // the disk is full now and then, or fails
	world    *world
	hand     []holding
	sessions map[string]time.Duration // that the client has locked, and until when

	sure  *world      // that is on disk for certain
	since []operation // that came then, in this order

	mu    sync.Mutex
	wires []*wire // of both clients
	after *disk   // as power was lost, nil: not yet
	lost  chan struct{}
}

// An operation is what a client has begun.
type operation struct {
	name    string
	apply   func(*world)
	outcome outcome
	certain bool // time passes, whatever the disk does
}

// live lets clients do something at random until power is lost, and returns what that leaves: a
// disk, and what may be on it.
func (s *scene) live(d *disk, worlds []*world) (after *disk, left []*world) {
	l := s.begin(d, worlds)
	for !l.powerLost() {
		l.act()
		l.conclude()
	}
	left = l.candidates()
	l.end()
	return l.after, left
}

// begin starts a broker, which has to have one of the worlds.
func (s *scene) begin(d *disk, worlds []*world) *life {
	s.t.Helper()
	l := &life{
		scene:    s,
		disk:     d,
		sessions: map[string]time.Duration{},
		lost:     make(chan struct{}),
	}
	survival, unsynced := rand.New(rand.NewPCG(s.r.Uint64(), 1)), []int{0, 30, 70, 100}[s.r.IntN(4)]
	lose := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.after != nil {
			return
		}
		for _, w := range l.wires {
			w.stop() // before the clone: what is said later may be missing
		}
		l.after = d.crashed(survival, unsynced)
		close(l.lost)
	}
	d.mu.Lock()
	d.lose, d.budget = lose, s.r.IntN([]int{5_000, 20_000, 50_000}[s.r.IntN(3)])
	d.mu.Unlock()
	fault := s.r.IntN(20)
	if l.faulty = fault < 8; l.faulty {
		d.fill(rand.New(rand.NewPCG(s.r.Uint64(), 2)))
	}
	l.store = openOn(s.t, d)
	l.store.KeepInMemory(500, 2000) // of the rest, the disk alone has the contents
	wantNothingOfOthers(s.t, l.store)
	now := worlds[0].now
	l.ns = brokertest.New(s.t, func(c *broker.Config) {
		*c = crashConfig()
		c.Disk, c.ClockOffset = yielding{l.store, new(atomic.Int64)}, now
	})
	l.recognize(worlds)
	l.client = l.connect()
	if fault == 0 {
		l.fail()
	}
	return l
}

func (l *life) connect() *wire {
	w := connect(l.t, l.ns)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wires = append(l.wires, w); l.after != nil {
		w.stop()
	}
	return w
}

func (l *life) powerLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

// A yielding store often lets a batch end between two steps that are not held together.
type yielding struct {
	*Store
	steps *atomic.Int64
}

func (y yielding) Queue(id uint32) queue.Log { return yieldingLog{y.Store.Queue(id), y.steps} }

type yieldingLog struct {
	queue.Log
	steps *atomic.Int64
}

func (y yieldingLog) Append(step *queue.Step) {
	if y.Log.Append(step); y.steps.Add(1)%3 == 0 {
		time.Sleep(testInterval / 100)
	}
}

// wantNothingOfOthers looks for what entities have left that are gone.
func wantNothingOfOthers(t *testing.T, s *Store) {
	t.Helper()
	there := map[uint32]bool{}
	highest, err := s.Entities(func(id uint32, _ []byte) error {
		there[id] = true
		return nil
	})
	for id := uint32(1); id <= highest && err == nil; id++ {
		if there[id] {
			err = s.CheckContents(id)
			continue
		}
		last := int64(0)
		last, err = s.Load(id, func(c *queue.Change) error { return fmt.Errorf("a change of fate %d, record %d", c.Fate, c.Record) })
		err = cmp.Or(err, s.CheckContents(id))
		if err == nil && last != 0 {
			err = fmt.Errorf("the last number %d", last)
		}
		if err != nil {
			err = fmt.Errorf("of entity %d, which is gone, there is %w", id, err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// fail lets the disk fail for good, after some writes.
func (l *life) fail() {
	var mu sync.Mutex
	left := l.r.IntN(30)
	failing := func() error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left < 0 {
			return syscall.EIO
		}
		return nil
	}
	if l.r.IntN(2) == 0 {
		l.disk.set(failing, nil)
	} else {
		l.disk.set(nil, failing)
	}
}

// note notes that an operation is under way.
func (l *life) note(name string, apply func(*world)) {
	apply(l.world)
	l.since = append(l.since, operation{name: name, apply: apply})
}

func (l *life) do(name string, apply func(*world), ask func() outcome) {
	i := len(l.since)
	l.note(name, apply)
	o := ask()
	l.since[i].outcome = o
	l.t.Log(name, o)
}

func (l *life) trouble() bool {
	return l.powerLost() || slices.ContainsFunc(l.since, func(o operation) bool { return o.outcome == refused })
}

// conclude compares the broker with the model when everything is done that was begun. After a
// refusal nobody knows what was done: that is found out after a crash.
func (l *life) conclude() {
	if l.trouble() {
		l.disk.lose()
		return
	}
	if l.client.stopped() {
		select {
		case <-l.lost:
		case <-time.After(answerTimeout):
			l.t.Fatal("the broker has closed the connection")
		}
		return
	}
	l.await(func() string { return gocmp.Diff(l.world.view(false), l.found(false)) })
	if l.powerLost() {
		return
	}
	l.adoptOrder()
	if l.isSure() {
		l.sure, l.since = l.world.clone(), nil
		l.remember()
	}
}

// isSure reports whether the disk has all that was begun: the latest was acknowledged, or all were
// but for what time does.
func (l *life) isSure() bool {
	if n := len(l.since); n > 0 && l.since[n-1].outcome == accepted {
		return true
	}
	return !slices.ContainsFunc(l.since, func(o operation) bool { return o.outcome == unanswered && !o.certain })
}

// await waits until there is no difference: movers work for themselves.
func (l *life) await(difference func() string) {
	l.t.Helper()
	for late := time.Now().Add(answerTimeout); ; time.Sleep(testInterval / 10) {
		diff := difference()
		if diff == "" || l.powerLost() {
			return
		}
		if time.Now().After(late) {
			l.t.Fatalf("the broker differs from the model (-want +got):\n%s", diff)
		}
	}
}

// recognize finds out which of the worlds it is that the broker has begun with.
func (l *life) recognize(worlds []*world) {
	l.t.Helper()
	for late := time.Now().Add(answerTimeout); ; time.Sleep(testInterval / 10) {
		found := l.found(true)
		for _, w := range worlds {
			if again := w.restart(w.now); gocmp.Equal(again.view(true), found) {
				l.world = again
				l.adoptOrder()
				l.sure = again.clone()
				l.remember()
				return
			}
		}
		if time.Now().After(late) {
			l.t.Fatalf("the broker begins with none of %d worlds; with what was acknowledged (-want +got):\n%s",
				len(worlds), gocmp.Diff(worlds[0].restart(worlds[0].now).view(true), found))
		}
	}
}

// candidates is what may be on disk after the loss of power. An operation that was refused may have
// been done or not.
func (l *life) candidates() (all []*world) {
	latest := -1
	for i, o := range l.since {
		if o.outcome == accepted {
			latest = i
		}
	}
	var choose func(i int, w *world, missing bool)
	choose = func(i int, w *world, missing bool) {
		if i == len(l.since) {
			all = append(all, w)
			return
		}
		o := l.since[i]
		if o.outcome != refused && (o.certain || i <= latest) {
			o.apply(w)
			choose(i+1, w, missing)
			return
		}
		if o.outcome == refused || !missing {
			with := w.clone()
			o.apply(with)
			choose(i+1, with, missing)
		}
		choose(i+1, w, missing || o.outcome == unanswered)
	}
	choose(0, l.sure.clone(), false)
	return all
}

// end ends the broker and its clients.
func (l *life) end() {
	l.disk.set(nil, nil)
	for _, w := range l.wires {
		w.end()
	}
	awaitRoom(l.store)
	if err := l.ns.Broker.Close(); err != nil {
		l.t.Errorf("closing the broker: %v", err)
	}
	err := l.store.Close()
	for errors.Is(err, queue.ErrNoRoom) { // of a write that began when the disk was full
		err = l.store.Close()
	}
	if err != nil && l.store.Trouble() == nil {
		l.t.Errorf("closing the directory: %v", err)
	}
}

// awaitRoom returns when the disk is not full.
func awaitRoom(s *Store) {
	for errors.Is(s.Trouble(), queue.ErrNoRoom) {
		time.Sleep(testInterval)
	}
}

// found is what the broker has, line by line. A message that moves between two entities while they
// are read shows in both or in neither. So it is read again until nothing moves.
func (l *life) found(states bool) []string {
	lines := l.read(states)
	for {
		again := l.read(states)
		if slices.Equal(lines, again) {
			return lines
		}
		lines = again
	}
}

// read is found once. States of sessions can be read when nobody has them.
func (l *life) read(states bool) (lines []string) {
	n := l.ns.Broker.Default()
	byPath := map[string][]string{}
	var paths []string
	for _, e := range n.Entities() {
		own := append([]string{e.Path()}, l.linesOf(e.Path())...)
		if states && e.RequiresSession() {
			own = append(own, statesOf(l.t, e)...)
		}
		if e.Path() == "archive" {
			slices.Sort(own)
		}
		paths = append(paths, e.Path())
		byPath[e.Path()] = own
	}
	slices.Sort(paths)
	for _, path := range paths {
		lines = append(lines, byPath[path]...)
	}
	relay, err := n.QueueInfo("relay")
	if err != nil {
		l.t.Fatal(err)
	}
	archive, err := n.QueueInfo("archive")
	if err != nil {
		l.t.Fatal(err)
	}
	rules, err := n.Rules("events", "eu")
	if err != nil {
		l.t.Fatal(err)
	}
	return append(lines, settingsLine(relay.Config.ForwardTo, len(rules) == 2, archive.Config.UserMetadata))
}

// linesOf is the messages of an entity.
func (l *life) linesOf(path string) (lines []string) {
	for _, dead := range []bool{false, true} {
		for _, v := range l.peek(path, dead) {
			number, size, err := contentOf(&v)
			if err != nil {
				l.t.Error(err)
			}
			lines = append(lines, line(path, dead, number, size, v.MessageID, v.SessionID, v.State, v.DeliveryCount, v.Locked, v.DeadLetterReason))
		}
	}
	return lines
}

// peek is the messages of a part of an entity.
func (l *life) peek(path string, dead bool) []queue.View {
	if dead {
		path += "/$DeadLetterQueue"
	}
	q, err := l.ns.Broker.Default().Inspect(path)
	if err != nil {
		l.t.Fatal(err)
	}
	views, err := q.Peek(nil, 0, 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	return views
}

func statesOf(t *testing.T, e *broker.Entity) (lines []string) {
	for _, id := range []string{"a", "b"} {
		sessions := e.Queue().Sessions()
		session, err := sessions.Accept(id)
		if err != nil {
			t.Fatal(err)
		}
		state, err := sessions.State(id)
		if err != nil {
			t.Fatal(err)
		}
		if session.Close(); len(state) > 0 {
			lines = append(lines, fmt.Sprintf("%s, session %s: %s", e.Path(), id, state))
		}
	}
	return lines
}

// contentOf reads the body of a message.
func contentOf(v *queue.View) (number, size int, err error) {
	for data, err := range amqp.DataSections(bodySection(v.Body)) {
		if err != nil {
			return 0, 0, err
		}
		return readBody(data)
	}
	return 0, 0, fmt.Errorf("message %s has no body", v.MessageID)
}

func bodySection(encoded []byte) []byte {
	m, err := amqp.ParseMessage(encoded)
	if err != nil {
		return nil
	}
	return m.Body
}

// adoptOrder takes over the order of what has come to the archive by itself: from a
// dead-modelMessage queue, or from a topic. It is the order in which movers had their turns.
func (l *life) adoptOrder() {
	var order []int
	for _, v := range l.peek("archive", false) {
		number, _, _ := contentOf(&v) // found has seen it
		order = append(order, number)
	}
	slices.SortFunc(l.world.entities["archive"].messages, func(a, b modelMessage) int {
		return cmp.Compare(slices.Index(order, a.number), slices.Index(order, b.number))
	})
}

// remember notes who has the sequence numbers, once that is on disk. Nobody else may ever have
// them.
func (l *life) remember() {
	numbers := map[string]int{}
	for _, e := range l.ns.Broker.Default().Entities() {
		if e.Path() == "extra" {
			continue // one that is made again begins with 1
		}
		for _, v := range slices.Concat(l.peek(e.Path(), false), l.peek(e.Path(), true)) {
			number, _, _ := contentOf(&v) // found has seen it
			numbers[fmt.Sprint(e.Path(), " ", v.SequenceNumber)] = number
		}
	}
	if err := l.store.Wait(); err != nil || l.powerLost() {
		return
	}
	for key, number := range numbers {
		if before, known := l.numbers[key]; known && before != number {
			l.t.Errorf("message %d has number %s, which message %d had", number, key, before)
		}
		l.numbers[key] = number
	}
}
