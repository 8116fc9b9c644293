// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const hold = 20 * time.Second

// A scene is a broker that expires by itself, with two queues.
type scene struct {
	*testing.T
	ns *brokertest.Namespace
}

var orders = Place{Entity: "orders"}

func play(t *testing.T, act func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Expiry = queue.Eager
			c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "again", DeadLetteringOnMessageExpiration: true}, {Name: "seated", RequiresSession: true}}
		})
		act(&scene{t, ns})
	})
}

// links is a way of its own to the broker, as each run of a command has one.
func (s *scene) links() *link.Namespace {
	links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: s.ns.Dial, Tokens: link.SAS("k", "c2VjcmV0")})
	s.Cleanup(func() { _ = links.Close() }) // a test may have cut it
	return links
}

// dead makes n dead letters of orders, m-1 to m-n, with the numbers 1 to n.
func (s *scene) dead(n int) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender("orders", nil)
	if err != nil {
		s.Fatal(err)
	}
	life := time.Second
	for i := range n {
		id := fmt.Sprintf("m-%d", i+1)
		m := &azservicebus.Message{MessageID: &id, Body: []byte(id), TimeToLive: &life, ApplicationProperties: map[string]any{"odd": i%2 == 0}}
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (s *scene) letters(place Place, chosen func(*Letter) bool) (all []*Letter) {
	s.Helper()
	err := Walk(s.Context(), s.links(), place, 0, func(l *Letter) bool {
		if chosen(l) {
			all = append(all, l)
		}
		return true
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

func everything(*Letter) bool { return true }

func numbersOf(ls []*Letter) map[int64]bool {
	all := map[int64]bool{}
	for _, l := range ls {
		all[l.Number] = true
	}
	return all
}

// A letter that is not chosen stays where it is, as it was.
func TestNothingButTheChosenIsTaken(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(250)
		filter := Filter{Properties: map[string]string{"odd": "true"}}
		chosen := numbersOf(s.letters(orders, func(l *Letter) bool { return filter.Fits(l, time.Now()) }))
		if len(chosen) != 125 {
			s.Fatalf("the filter means %d, want 125", len(chosen))
		}
		purged := 0
		if _, _, err := Purge(s.Context(), s.links(), orders, chosen, hold, 0, func(n int) { purged += n }); err != nil {
			s.Fatal(err)
		}
		if purged != 125 || len(chosen) != 0 {
			s.Errorf("purged %d, and %d are left, want 125 and none", purged, len(chosen))
		}
		left := s.letters(orders, everything)
		if len(left) != 125 {
			s.Fatalf("%d dead letters are there, want 125", len(left))
		}
		for i, l := range left {
			if l.Number != int64(2*i+2) || l.DeliveryCount != 0 || l.Reason != "TTLExpiredException" {
				s.Errorf("dead letter %d: %+v, want number %d as it was", i, l, 2*i+2)
			}
		}
		// It is given back at once, not when its lock lapses.
		if _, _, err := Purge(s.Context(), s.links(), orders, numbersOf(left), hold, 0, nil); err != nil || len(s.letters(orders, everything)) != 0 {
			s.Errorf("purge of the rest: %v, %d are left", err, len(s.letters(orders, everything)))
		}
	})
}

func TestWhatIsBuriedIsNotWaitedForForever(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(150)
		_, _, err := Purge(s.Context(), s.links(), orders, map[int64]bool{150: true}, -1, 0, nil)
		if !errors.Is(err, ErrBuried) {
			s.Errorf("Purge = %v, want ErrBuried", err)
		}
		if n := len(s.letters(orders, everything)); n != 150 {
			s.Errorf("%d dead letters are left, want all 150", n)
		}
	})
}

func TestARateIsKept(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(50)
		began := time.Now()
		if _, _, err := Purge(s.Context(), s.links(), orders, numbersOf(s.letters(orders, everything)), hold, 2, nil); err != nil {
			s.Fatal(err)
		}
		// The last batch, of twenty at most, need not be waited for.
		if took := time.Since(began); took < 15*time.Second || took > 30*time.Second {
			s.Errorf("50 at 2 per second took %v, want about 20s", took)
		}
	})
}

// resubmit is one run of a resubmission of everything there is, as a process of its own.
func (s *scene) resubmit(path string, change func(*Resubmission)) (o Outcome, err error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	journal, err := OpenJournal(path)
	if err != nil {
		s.Fatal(err)
	}
	defer func() {
		if err := journal.Close(); err != nil {
			s.Error(err)
		}
	}()
	links := s.links()
	chosen := map[int64]bool{}
	if err := Walk(ctx, links, orders, 0, func(l *Letter) bool { chosen[l.Number] = true; return true }); err != nil {
		return o, err
	}
	out, err := links.Sender(ctx, "again")
	if err != nil {
		return o, err
	}
	defer out.Close(ctx)
	r := &Resubmission{Links: links, Place: orders, Out: out, To: "again", IsQueue: true, Journal: journal, Hold: hold}
	if change != nil {
		change(r)
	}
	return r.Run(ctx, chosen)
}

// cutOnArrival cuts the connections when the target has n messages, before anybody hears of it, unless done is called first.
func (s *scene) cutOnArrival(n int) (done func()) {
	q, _ := s.ns.Broker.Queue("again")
	s.ns.Net.Delay(pipenet.ToDialer, time.Millisecond)
	ctx, cancel := context.WithCancel(s.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if len(brokertest.Seen(q.Peek(nil, 0, n))) >= n {
				s.ns.Net.Cut()
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	return func() {
		cancel()
		watching.Wait()
		s.ns.Net.Delay(pipenet.ToDialer, 0)
	}
}

// copies are the numbers of the dead letters that have copies in the target, and how many.
func (s *scene) copies() map[int64]int {
	s.Helper()
	q, _ := s.ns.Broker.Queue("again")
	all := map[int64]int{}
	for _, v := range brokertest.Seen(q.Peek(nil, 0, 10_000)) {
		m, err := amqp.ParseMessage(v.Body)
		if err != nil {
			s.Fatal(err)
		}
		r, ok := amqp.MapLookup(m.ApplicationProperties, PropertyNumber)
		if !ok {
			s.Fatalf("a copy without %s", PropertyNumber)
		}
		all[r.Long()]++
	}
	return all
}

// Connections are cut anywhere, so that nobody knows whether the last batch has arrived, until
// everything has been resubmitted. In the end every dead letter has one copy, and no dead letter is
// left.
func TestACopyIsNeverSentTwice(t *testing.T) {
	racetest.Skip(t, "it has thousands of cases of one kind")
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	cut := 0
	for round := range 12 {
		play(t, func(s *scene) {
			const n = 230
			s.dead(n)
			path := filepath.Join(s.TempDir(), "journal.db")
			for run := 0; ; run++ {
				if run == 20 {
					s.Fatalf("round %d: not done after 20 runs", round)
				}
				s.ns.Net.CutAfter(pipenet.ToListener|pipenet.ToDialer, -1)
				arrived := func() {}
				switch {
				case run < 5 && rng.IntN(2) == 0:
					s.ns.Net.CutAfter(pipenet.ToListener|pipenet.ToDialer, 1000+rng.Int64N(60_000))
				case run < 5:
					arrived = s.cutOnArrival(len(s.copies()) + 1 + rng.IntN(n))
				}
				o, err := s.resubmit(path, func(r *Resubmission) { r.Copying.NoDeadline = true })
				arrived()
				if err != nil {
					cut++
					time.Sleep(2 * time.Minute) // locks of the run that was cut lapse
					continue
				}
				if len(o.Unsure) > 0 {
					s.Fatalf("round %d: unsure of %v, though nobody has received a copy", round, o.Unsure)
				}
				s.ns.Net.CutAfter(pipenet.ToListener|pipenet.ToDialer, -1)
				if len(s.letters(orders, everything)) == 0 {
					break
				}
			}
			for number, count := range s.copies() {
				if count != 1 {
					s.Errorf("round %d: %d copies of %d", round, count, number)
				}
			}
			if got := len(s.copies()); got != n {
				s.Errorf("round %d: %d of %d have copies", round, got, n)
			}
		})
	}
	if cut < 6 {
		t.Errorf("only %d runs were cut: the test tests nothing", cut)
	}
}

// A copy that was received before the next run could see it is not sent again, unless somebody says so.
func TestWhatMayHaveBeenReceivedIsLeftAlone(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(10)
		path := filepath.Join(s.TempDir(), "journal.db")
		// The batch arrives, and its acknowledgement does not.
		arrived := s.cutOnArrival(10)
		_, err := s.resubmit(path, nil)
		arrived()
		if err == nil || len(s.copies()) != 10 {
			s.Fatalf("the first run ended with %v and %d copies, want an error and all 10", err, len(s.copies()))
		}
		receiver, err := s.ns.Client(s.T).NewReceiverForQueue("again", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		if err != nil {
			s.Fatal(err)
		}
		for got := 0; got < 10; {
			ms, err := receiver.ReceiveMessages(s.Context(), 10, nil)
			if err != nil {
				s.Fatal(err)
			}
			got += len(ms)
		}
		time.Sleep(2 * time.Minute)
		o, err := s.resubmit(path, nil)
		if want := slices.Sorted(maps.Keys(numbersOf(s.letters(orders, everything)))); err != nil || !slices.Equal(o.Unsure, want) || len(want) != 10 || o.Copied != 0 {
			s.Errorf("the second run: %+v, %v, want to be unsure of %v", o, err, want)
		}
		o, err = s.resubmit(path, func(r *Resubmission) { r.Resend = true })
		if err != nil || o.Copied != 10 || len(s.letters(orders, everything)) != 0 {
			s.Errorf("the third run, with resend: %+v, %v, want 10 copied and none left", o, err)
		}
	})
}

func TestOneProcessAtATimeHasAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "journal.db")
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path); err == nil || !strings.Contains(err.Error(), "another process's") {
		t.Errorf("OpenJournal of one that is open = %v, want a sentence", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A copy has all of its dead letter but the marks of one, and a deadline of its own.
func TestACopyIsTheMessageWithoutItsMarks(t *testing.T) {
	var props []byte
	props, start := amqp.BeginMap(props)
	for _, text := range []string{"kind", statesWithin, statesDeadline, deadLetterReason, deadLetterDescription} {
		props = amqp.AppendString(amqp.AppendString(props, text), "v-"+text)
	}
	props = amqp.EndMap(props, start, 5)
	notes, start := amqp.BeginMap(nil)
	notes = amqp.AppendLong(amqp.AppendSymbol(notes, "x-opt-sequence-number"), 42)
	notes = amqp.AppendString(amqp.AppendSymbol(notes, "x-opt-partition-key"), "p")
	notes = amqp.EndMap(notes, start, 2)
	session := "s"
	p := amqp.Properties{MessageID: "id", GroupID: &session, CorrelationID: uint64(7), HasCreationTime: true, HasAbsoluteExpiryTime: true}
	// A decimal, which the SDK cannot even read.
	body := amqp.AppendValueSection(nil, amqp.Raw{0x74, 1, 2, 3, 4})
	m := amqp.Message{
		Header: amqp.Header{Durable: true, Priority: 7, TTL: 1000, HasTTL: true, DeliveryCount: 3}.Raw(), MessageAnnotations: notes,
		Properties: p.Raw(), ApplicationProperties: props, Body: body,
	}
	l, err := Parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := (&Copying{Within: time.Minute, NewIDs: true}).Encode(orders, l)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(encoded)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"kind": "v-kind", statesWithin: "1m0s", PropertyFrom: "orders", PropertyNumber: "42", PropertyMessageID: "id",
		PropertyReason: "v-" + deadLetterReason, PropertyDescription: "v-" + deadLetterDescription,
	}
	got := map[string]string{}
	for name, v := range c.Properties {
		got[name] = Text(v)
	}
	if !maps.Equal(got, want) {
		t.Errorf("application properties %v, want %v", got, want)
	}
	if string(c.message.Body) != string(body) {
		t.Errorf("body %x, want %x", c.message.Body, body)
	}
	if c.TimeToLive.Duration != 0 || c.DeliveryCount != 0 || c.Number != 0 || *c.SessionID != "s" || *c.PartitionKey != "p" || c.CorrelationID != "7" ||
		!strings.HasPrefix(c.MessageID, "resubmitted-") {
		t.Errorf("copy %+v", c)
	}
	if p, err := amqp.DecodeProperties(c.message.Properties); err != nil || p.HasCreationTime || p.HasAbsoluteExpiryTime {
		t.Errorf("properties %+v, %v, want none of the times of the first one", p, err)
	}
}

func FuzzLetter(f *testing.F) {
	f.Add((&amqp.Message{Header: amqp.Header{TTL: 5, HasTTL: true}.Raw(), Body: amqp.AppendValueSection(nil, nil)}).Append(nil))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		l, err := Parse(encoded)
		if err != nil {
			return
		}
		_ = l.Body()
		c, err := (&Copying{Within: time.Second}).Encode(orders, l)
		if err != nil {
			return
		}
		if _, err := Parse(c); err != nil {
			t.Errorf("the copy of %x cannot be read: %v", encoded, err)
		}
	})
}

// A dead letter was due when the monitor says so: by what it states, in any form, or at the end of its life.
func TestWhenADeadLetterWasDue(t *testing.T) {
	enqueued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		properties map[string]any
		life       time.Duration
		want       time.Time
	}{
		{nil, 0, time.Time{}},
		{nil, time.Minute, enqueued.Add(time.Minute)},
		{map[string]any{"overdue-within": "PT30S"}, 0, enqueued.Add(30 * time.Second)},
		{map[string]any{"overdue-within": "30s"}, 10 * time.Second, enqueued.Add(10 * time.Second)},
		{map[string]any{"overdue-within": "30s", "ce-expirytime": "2026-01-01T00:00:05Z"}, 0, enqueued.Add(30 * time.Second)},
		{map[string]any{"overdue-deadline": amqp.TimestampOf(enqueued.Add(time.Hour))}, 0, enqueued.Add(time.Hour)},
		{map[string]any{"overdue-deadline": "soon"}, time.Minute, enqueued.Add(time.Minute)},
	} {
		l := Letter{EnqueuedTime: enqueued, TimeToLive: Span{c.life}, Properties: c.properties}
		if got := l.due(); !got.Equal(c.want) {
			t.Errorf("%v, to live for %v: due %v, want %v", c.properties, c.life, got, c.want)
		}
	}
}
