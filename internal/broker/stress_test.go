// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
)

// TestNoMessageIsLostOrDoubledWhateverHappensAtOnce lets clients send, receive
// and settle through forwards, a topic, sessions and transactions while entities
// are updated, made and deleted, links detached, connections cut and operations
// made to fail. At the end every message that was acknowledged is, in each place
// where it belongs, either completed or still there, and that once.
//
//	in ─▶ mid ─▶ t ─┬─▶ s1
//	                ├─▶ s2 ─▶ out
//	                ├─▶ s3   by session
//	                ├─▶ s4   with an action
//	                └─▶ s5 ─▶ even: those that the filter lets through
//	work ─▶ (dead letters) ─▶ dead        circle1 ◀─▶ circle2
//	sess   by session
func TestNoMessageIsLostOrDoubledWhateverHappensAtOnce(t *testing.T) {
	seed := testseed.Of(t) // of what is random, though not of what is concurrent
	synctest.Test(t, func(t *testing.T) { stress(t, seed, nil) })
}

// The same with a disk that alone has what is in the messages.
func TestNoMessageOnDiskIsLostOrDoubledWhateverHappensAtOnce(t *testing.T) {
	seed := testseed.Of(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, err := store.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		disk.KeepInMemory(0, 0)
		stress(t, seed, disk)
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
}

func stress(t *testing.T, seed uint64, disk Disk) {
	w := newWorld(t, seed, disk)
	var clients, others sync.WaitGroup
	run := func(wg *sync.WaitGroup, n int, f func(*actor)) {
		for range n {
			a := w.actor()
			wg.Go(func() { f(a) })
		}
	}
	for _, to := range []string{"in", "in", "work", "sess", "circle1"} {
		run(&clients, 1, func(a *actor) { a.send(to, 80) })
	}
	for _, from := range []string{"t/Subscriptions/s1", "out", "t/Subscriptions/s4", "even", "work", "dead"} {
		run(&clients, 1, func(a *actor) { a.receive(from, false, 40) })
	}
	for _, from := range []string{"sess", "sess", "t/Subscriptions/s3", "t/Subscriptions/s3"} {
		run(&clients, 1, func(a *actor) { a.receive(from, true, 40) })
	}
	run(&clients, 2, func(a *actor) { a.transact(30) })
	run(&others, 2, func(a *actor) { a.disturb(&w.over) })
	run(&others, 2, func(a *actor) { a.resetOther(&w.over) })
	clients.Wait()
	w.over.Store(true)
	others.Wait()
	w.settleDown()
	w.account()
	w.close()
}

// setting is what the core of the namespace is like when nobody disturbs it.
func setting() Config {
	sub := func(name, forward string, sessions bool, rules ...RuleConfig) SubscriptionSetup {
		return SubscriptionSetup{SubscriptionConfig: SubscriptionConfig{
			Name: name, ForwardTo: forward, RequiresSession: sessions, LockDuration: 5 * time.Second, MaxDeliveryCount: 5,
		}, Rules: rules}
	}
	q := func(name, forward, dead string, sessions bool) QueueConfig {
		return QueueConfig{Name: name, ForwardTo: forward, ForwardDeadLetteredMessagesTo: dead, RequiresSession: sessions,
			LockDuration: 5 * time.Second, MaxDeliveryCount: 3}
	}
	return Config{
		Isolate: true,
		Queues: []QueueConfig{
			q("in", "mid", "", false), q("mid", "t", "", false), q("out", "", "", false), q("even", "", "", false),
			q("work", "", "dead", false), q("dead", "", "", false), q("sess", "", "", true),
			q("circle1", "circle2", "", false), q("circle2", "circle1", "", false),
		},
		Topics: []TopicSetup{{TopicConfig: TopicConfig{Name: "t"}, Subscriptions: []SubscriptionSetup{
			sub("s1", "", false), sub("s2", "out", false), sub("s3", "", true),
			sub("s4", "", false, RuleConfig{Name: "set", Filter: Filter{True: true}, Action: Action{SQL: "SET seen = 'yes'"}}),
			sub("s5", "even", false, RuleConfig{Name: "even", Filter: Filter{SQL: &SQLFilter{Expression: "n % 2 = 0"}}}),
		}}},
	}
}

// A place is where a message that was sent to one of from belongs, once.
type place struct {
	name   string
	from   []string
	paths  []string // where it can lie, each with its dead-letter queues
	onlyIf func(n int) bool
	orHere bool // or on the way, where it stays for all places
}

var onTheWay = []string{"in", "mid", "t"}

var places = []place{
	{name: "s1", from: []string{"in"}, paths: []string{"t/Subscriptions/s1"}, orHere: true},
	{name: "out", from: []string{"in"}, paths: []string{"t/Subscriptions/s2", "out"}, orHere: true},
	{name: "s3", from: []string{"in"}, paths: []string{"t/Subscriptions/s3"}, orHere: true},
	{name: "s4", from: []string{"in"}, paths: []string{"t/Subscriptions/s4"}, orHere: true},
	{name: "even", from: []string{"in"}, paths: []string{"t/Subscriptions/s5", "even"}, orHere: true,
		onlyIf: func(n int) bool { return n%2 == 0 }},
	{name: "work", from: []string{"work"}, paths: []string{"work", "dead"}},
	{name: "sess", from: []string{"sess"}, paths: []string{"sess"}},
	{name: "circle", from: []string{"circle1"}, paths: []string{"circle1", "circle2"}},
}

// placeOf returns the name of the place that a path belongs to.
func placeOf(path string) string {
	for _, p := range places {
		if slices.Contains(p.paths, path) {
			return p.name
		}
	}
	return ""
}

// settleDown undoes what was disturbed, and lets every lock lapse.
func (w *world) settleDown() {
	w.n.Heal()
	for _, q := range setting().Queues {
		if _, err := w.n.UpdateQueue(q); err != nil {
			w.t.Errorf("update of %s = %v, want nil", q.Name, err)
		}
	}
	topic := setting().Topics[0]
	if _, err := w.n.UpdateTopic(topic.TopicConfig); err != nil {
		w.t.Errorf("update of the topic = %v, want nil", err)
	}
	for _, s := range topic.Subscriptions {
		if _, err := w.n.UpdateSubscription("t", s.SubscriptionConfig); err != nil {
			w.t.Errorf("update of %s = %v, want nil", s.Name, err)
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
}

// there counts the messages that lie in an entity and its dead-letter queues.
func (w *world) there(count map[string]int, path string) {
	for _, suffix := range []string{"", "/$deadletterqueue", "/$transfer/$deadletterqueue"} {
		q, err := w.n.Inspect(path + suffix)
		if err != nil {
			w.t.Fatal(err)
		}
		views, err := q.Peek(nil, math.MinInt64, 1<<20)
		if err != nil {
			w.t.Errorf("peek at %s = %v, want nil", path+suffix, err)
		}
		for i := range views {
			if id := views[i].MessageID; !strings.HasPrefix(id, "tmp") {
				count[id]++
			}
		}
	}
}

// account finds every message.
func (w *world) account() {
	here := map[string]int{}
	for _, path := range onTheWay {
		w.there(here, path)
		e := w.n.entities.find(path)
		if c := e.queue.Counts(); c.Active+c.Scheduled+c.Deferred > 0 {
			w.t.Errorf("%d messages wait in %s, want none", c.Active, path)
		}
	}
	lost, doubled, sure := 0, 0, 0
	for _, p := range places {
		there := map[string]int{}
		for _, path := range p.paths {
			w.there(there, path)
		}
		for id, m := range w.messages {
			if !slices.Contains(p.from, m.to) || p.onlyIf != nil && !p.onlyIf(m.n) {
				continue
			}
			found := there[id] + w.completed[p.name+" "+id]
			if p.orHere {
				found += here[id]
			}
			least, most := 1, 1
			switch {
			case m.fate == turnedAway:
				least, most = 0, 0
			case m.fate == unsure, w.maybe[p.name+" "+id]:
				least = 0
			default:
				sure++
			}
			switch {
			case found < least:
				lost++
				w.t.Errorf("%s: message %s (%v) is lost", p.name, id, m.fate)
			case found > most:
				doubled++
				w.t.Errorf("%s: message %s (%v) is there %d times, completed %d times, and %d times on the way: want %d at most",
					p.name, id, m.fate, there[id], w.completed[p.name+" "+id], here[id], most)
			}
		}
	}
	w.t.Logf("%d messages, %d places accounted for with certainty, %d completions, %d errors of clients, %d disturbances, %d transactions",
		len(w.messages), sure, len(w.completed), w.trouble, w.disturbed, w.discharged)
	if sure < 300 || len(w.completed) < 100 || w.disturbed < 20 || w.discharged == 0 {
		w.t.Error("that is too little to mean anything")
	}
}

// close ends everything; that no goroutine is left is what the bubble checks.
func (w *world) close() {
	if err := w.b.Close(); err != nil {
		w.t.Errorf("Close = %v, want nil", err)
	}
	w.net.Cut()
	for _, q := range []string{"in", "t"} {
		if e := w.n.entities.find(q); e != nil {
			w.t.Errorf("%s is there after Close", q)
		}
	}
}

// A fate is what the sender of a message knows of it.
type fate int

const (
	turnedAway fate = iota // it was said that it is not there
	unsure                 // nothing was said
	acknowledged
)

func (f fate) String() string { return [...]string{"refused", "unsure", "acknowledged"}[f] }

type sentMessage struct {
	to   string
	n    int
	fate fate
}

func newWorld(t *testing.T, seed uint64, disk Disk) *world {
	network := pipenet.New()
	ln, err := network.Listen("stress")
	if err != nil {
		t.Fatal(err)
	}
	cfg := setting()
	cfg.Disk = disk
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, b: b, n: b.Default(), net: network, seed: seed,
		messages: map[string]*sentMessage{}, completed: map[string]int{}, maybe: map[string]bool{}}
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Serve(ln) }() // its error is that the broker is closed
	t.Cleanup(func() { <-done })
	return w
}

// note remembers a message before it is sent.
func (w *world) note(to string) (id string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = len(w.messages)
	id = fmt.Sprintf("%s-%d", to, n)
	w.messages[id] = &sentMessage{to: to, n: n, fate: unsure}
	return id, n
}

func (w *world) know(id string, f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages[id].fate = f
}

// complete notes a completion, sure or not.
func (w *world) complete(place, id string, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sure {
		w.completed[place+" "+id]++
	} else {
		w.maybe[place+" "+id] = true
	}
}

func (w *world) add(counter *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*counter++
}

// messageOf is a message as transactions send it.
func messageOf(id string, n int, session string) queue.Message {
	return queue.Message{Body: textMessage(id, n), MessageID: id, SessionID: session, HasSession: session != ""}
}
