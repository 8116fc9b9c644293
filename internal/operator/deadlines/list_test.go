// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/monitorqueue"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/redistest"
	"overdue/scheduler"
)

func (s *scene) list(o ListOptions) *Listing {
	s.Helper()
	l, err := List(s.Context(), s.source, o)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *scene) listText(o ListOptions, width int) string {
	s.Helper()
	l := s.list(o)
	return s.text(func(w io.Writer) error { return l.WriteText(w, time.Now(), width) })
}

func TestListCountsCompanionsByEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		now := time.Now()
		if got, want := s.listText(ListOptions{}, 0), "No deadlines are pending in overdue-monitor.\n"; got != want {
			t.Errorf("without companions: %q, want %q", got, want)
		}
		bills := companionOf("b-1", now, time.Hour)
		bills.Entity = "bills"
		s.schedule(nil, companionOf("late", now, 10*time.Minute), companionOf("soon", now, time.Second), bills)
		time.Sleep(5 * time.Second)
		got := s.list(ListOptions{})
		if len(got.Entities) != 2 || got.Upcoming != nil || got.Fleet != nil {
			t.Fatalf("listing %+v, want two entities and nothing else", got)
		}
		for i, want := range []Entity{
			{Entity: "bills", Companions: 1, Deadlines: 1},
			{Entity: "orders", Companions: 2, Deadlines: 2, Due: 1},
		} {
			e := *got.Entities[i]
			if e.Next.IsZero() || e.Last.Before(e.Next) {
				t.Errorf("%s: next due at %v, last at %v", e.Entity, e.Next, e.Last)
			}
			e.Next, e.Last = time.Time{}, time.Time{}
			if e != want {
				t.Errorf("entity %d: %+v, want %+v", i, e, want)
			}
		}
		const want = `ENTITY  DEADLINES  SLOTS  DUE  MISSED  NEXT DUE  LAST DUE
bills   1          0      0    0       59m55s    59m55s
orders  2          0      1    0       4s ago    9m55s
`
		if diff := cmp.Diff(want, s.listText(ListOptions{}, 100)); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		if text := s.listText(ListOptions{}, 80); !strings.Contains(text, "orders has companions that have been due for more than a minute: consumers hold\nthe messages") {
			t.Errorf("text of companions that nobody sees to:\n%s", text)
		}
	})
}

func TestListReadsEveryMonitorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *broker.Config) {
			c.Queues = append(c.Queues, broker.QueueConfig{Name: monitorQueue + ".2"}, broker.QueueConfig{Name: "bills"})
		})
		queues := monitorqueue.Of(monitorQueue, 2)
		now := time.Now()
		var all []scheduler.Companion
		for _, entity := range []string{"orders", "bills", "claims", "returns"} {
			c := companionOf("m", now, time.Hour)
			c.Entity = entity
			all = append(all, c)
		}
		s.schedule(func(c *scheduler.Config) { c.MonitorQueues = 2 }, all...)
		for i, want := range []int{1, 4} {
			s.source.MonitorQueues = i + 1
			if got := len(s.list(ListOptions{}).Entities); got < want || i == 0 && got == 4 {
				t.Errorf("%d queues: %d entities are listed, want all of them with 2 queues, and some with 1", i+1, got)
			}
		}
		if queues.Index("bills") == 0 {
			t.Fatal("the companions of bills are on the first of two queues")
		}
		found, err := Explain(t.Context(), s.source, ExplainOptions{Place: dlq.Place{Entity: "bills"}, MessageID: "m"})
		if err != nil || found.counts.named != 1 {
			t.Errorf("Explain of a message whose companion is on the second queue: %+v, %v", found, err)
		}
	})
}

func TestListNamesTheNextDeadlinesOfAnEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		now := time.Now()
		long := "f81d4fae-7dec-11d0-a765-00a0c91e6bf6-and-more"
		missed := companionOf("gone", now.Add(-time.Minute), time.Second)
		missed.References[0].Missed = &scheduler.Missed{DeadLetterReason: "TTLExpiredException"}
		blind := companionOf("host-1", now.Add(-time.Minute), time.Second) // an event of no message
		blind.References[0].Missed = &scheduler.Missed{Type: "overdue.blind", Notice: []byte("{}")}
		seated := companionOf(long, now, 2*time.Minute)
		seated.References[0].SessionID = "customer-4711-of-the-north"
		s.schedule(nil, companionOf("b", now, 3*time.Minute), missed, blind, seated, companionOf("a", now, 3*time.Minute), companionOf("z", now, time.Hour))
		got := s.list(ListOptions{Entity: "Orders", Limit: 3})
		var ids []string
		for _, d := range got.Upcoming {
			ids = append(ids, d.MessageID)
		}
		if diff := cmp.Diff([]string{"gone", long, "a"}, ids); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if !got.Upcoming[0].Missed || got.Upcoming[1].Missed || got.Upcoming[1].SessionID != "customer-4711-of-the-north" {
			t.Errorf("deadlines %+v", got.Upcoming)
		}
		if e := got.Entities[0]; e.Deadlines != 4 || e.Missed != 1 || e.Due != 0 || e.Next.Before(now) {
			t.Errorf("a missed deadline counts as one that is to come: %+v", *e)
		}
		text := s.listText(ListOptions{Entity: "orders", Limit: 10}, 100)
		for _, want := range []string{
			"missed  gone                                          –             ttl\n",
			"2m      f81d4fae-7dec-11d0-a765-00a0c91e6bf6-and-mo…  customer-47…  ttl\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("text lacks %q:\n%s", want, text)
			}
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(line)) - 1; n > 100 {
				t.Errorf("a line has %d columns: %s", n, line)
			}
		}
		if whole := s.listText(ListOptions{Entity: "orders", Limit: 10}, 0); !strings.Contains(whole, long+"  customer-4711-of-the-north") {
			t.Errorf("ids are cut where no terminal is:\n%s", whole)
		}
		if other := s.list(ListOptions{Entity: "seated", Limit: 3}); len(other.Entities)+len(other.Upcoming) != 0 {
			t.Errorf("listing of another entity: %+v", other)
		}
	})
}

func TestListKeepsOnlyTheNextDeadlinesOfMany(t *testing.T) {
	l := &Listing{}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for i := range 3000 {
		c := &stored{Companion: companionOf(fmt.Sprintf("m-%d", i), now, time.Duration(3000-i)*time.Second)}
		l.add(c, 2)
		if len(l.Upcoming) > 1008 {
			t.Fatalf("%d deadlines are in memory, want 1008 at most", len(l.Upcoming))
		}
	}
	if got := next(l.Upcoming, 2); got[0].MessageID != "m-2999" || got[1].MessageID != "m-2998" {
		t.Errorf("the next are %+v, want m-2999 and m-2998", got)
	}
}

func TestListCountsCompanionsOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.scheduleSlot("m")
		got := s.list(ListOptions{Entity: "orders", Limit: 5})
		if len(got.Entities) != 1 || got.Entities[0].Slots == 0 || got.Entities[0].Deadlines != 0 || len(got.Upcoming) != 0 {
			t.Errorf("listing %+v, want companions of slots that name no message", got)
		}
	})
}

func TestListCountsCompanionsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		foreign := func(m *azservicebus.Message) { m.ContentType = to.Ptr("text/plain") }
		companion := func(m *azservicebus.Message) { m.ContentType = to.Ptr(companionType) }
		s.send(monitorQueue, "1", 0, companion)
		s.send(monitorQueue, "2", 0, foreign)
		sender, err := s.ns.Client(t).NewSender(monitorQueue, nil)
		if err != nil {
			t.Fatal(err)
		}
		value := &azservicebus.AMQPAnnotatedMessage{
			Body:       azservicebus.AMQPAnnotatedMessageBody{Value: "text"},
			Properties: &azservicebus.AMQPAnnotatedMessageProperties{ContentType: to.Ptr(companionType)},
		}
		if err := sender.SendAMQPAnnotatedMessage(t.Context(), value, nil); err != nil {
			t.Fatal(err)
		}
		got := s.list(ListOptions{})
		if got.Unreadable != 2 || len(got.Entities) != 0 {
			t.Errorf("listing %+v, want two unreadable companions", got)
		}
		if text := s.listText(ListOptions{}, 0); !strings.Contains(text, "2 companions cannot be read. The monitor moves them to the dead-letter queue of overdue-monitor.\n") {
			t.Errorf("text:\n%s", text)
		}
	})
}

func TestListDoesNotCountClockProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.schedule(nil)
		q, ok := s.ns.Broker.Queue(monitorQueue)
		if !ok {
			t.Fatal("there is no monitor queue")
		}
		left := func() int { return len(brokertest.Seen(q.Peek(nil, 0, 10))) }
		// The process ends while it measures, which leaves the probe.
		s.ns.Net.Delay(pipenet.ToListener, 100*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.scheduler.MeasureClock(ctx) }()
		for left() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		s.ns.Net.Stall(pipenet.Both)
		cancel()
		if err := <-done; err == nil {
			t.Error("MeasureClock = nil, though it was interrupted")
		}
		s.ns.Net.Cut()
		s.ns.Net.Resume(pipenet.Both)
		s.source.Links = s.links(link.SAS("k", "c2VjcmV0"))
		if got := s.list(ListOptions{}); left() != 1 || got.Unreadable != 0 || len(got.Entities) != 0 {
			t.Errorf("with %d clock probes the listing is %+v, want one, and nothing listed", left(), got)
		}
	})
}

func TestListSaysWhatToDoAboutAMonitorQueueItCannotRead(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(*scene) context.Context
		want   string
	}{
		"not there": {func(s *scene) context.Context { s.source.MonitorQueue = "none"; return s.Context() }, `there is no monitor queue "none"; create it with ` + "`overdue doctor --fix`"},
		"no right": {func(s *scene) context.Context {
			s.source.Links = s.links(link.SAS("send", "cw=="))
			return s.Context()
		}, "Listen right on overdue-monitor; see docs/operate/rights.md"},
		"interrupted": {func(s *scene) context.Context {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			return ctx
		}, "interrupted before the end"},
		"unreachable": {func(s *scene) context.Context {
			refuse := func(context.Context) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
			}
			s.source.Links = link.New(link.Config{Host: "overdue.test", Plain: true, Dial: refuse, Tokens: link.SAS("k", "c2VjcmV0")})
			return s.Context()
		}, "the namespace cannot be reached: dial tcp: connection refused"},
		"silent": {func(s *scene) context.Context {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			s.Cleanup(cancel)
			s.ns.Net.Stall(pipenet.Both)
			return ctx
		}, "read companions in overdue-monitor: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(b *broker.Config) {
					b.Keys = []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "c2VjcmV0", Send: true, Listen: true, Manage: true}, {KeyName: "send", PrimaryKey: "cw==", Send: true}}
				})
				ctx := c.adjust(s)
				if _, err := List(ctx, s.source, ListOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("List = %v, want an error with %q", err, c.want)
				}
			})
		})
	}
}

// The store is real, so time is as well.
func TestListReadsCompanionsFromRedis(t *testing.T) {
	s := setup(t)
	store := s.useRedis(redistest.InMemory(t).Addr())
	s.source.CompanionsInRedis = true
	companions := store.Companions()
	now := time.Now()
	s.schedule(func(c *scheduler.Config) { c.Store = companions },
		companionOf("early", now, 10*time.Minute), companionOf("due", now.Add(-time.Hour), time.Minute))
	if err := companions.Put(t.Context(), []redisstore.Item{
		{ID: "bad", Due: now.Add(time.Hour), ContentType: companionType, Body: []byte("{")},
		{ID: "note", Due: now.Add(time.Hour), ContentType: "application/x-note", Note: true},
		{ID: "hopeless", Due: now.Add(-2 * time.Hour), ContentType: companionType, Body: []byte("{")},
	}); err != nil {
		t.Fatal(err)
	}
	leases, _, err := companions.Claim(t.Context(), now.Add(-90*time.Minute), 10)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d companions, %v; want one", len(leases), err)
	}
	if err := companions.Bury(t.Context(), leases[0], "AlertUndeliverable", "no sink took it"); err != nil {
		t.Fatal(err)
	}
	if err := store.View().Report(t.Context(), redisstore.Process{Monitor: true, Outstanding: map[string]int64{"orders": 3, "bills": 1}}, map[string]map[string]uint64{"orders": {"missed": 2, "met": 9}}); err != nil {
		t.Fatal(err)
	}
	got := s.list(ListOptions{Entity: "ORDERS", Limit: 5})
	if len(got.Entities) != 1 || got.Entities[0].Deadlines != 2 || got.Entities[0].Due != 1 || got.Unreadable != 1 {
		t.Errorf("listing %+v, entities %+v; want two deadlines of orders, one of them due, and an unreadable companion", got, got.Entities)
	}
	if diff := cmp.Diff(map[string]int{"AlertUndeliverable": 1}, got.Failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Fleet{Monitors: 1, Entities: []FleetEntity{{"orders", 3, 2}}}, got.Fleet); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
	text := s.listText(ListOptions{}, 100)
	for _, want := range []string{
		"One monitor reported to Redis:\nENTITY  IN PROGRESS  MISSED\nbills   1            0\norders  3            2\n",
		"1 companion failed: AlertUndeliverable.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("text lacks %q:\n%s", want, text)
		}
	}
}

func TestListShowsTheRestWhenRedisDoesNotAnswer(t *testing.T) {
	s := setup(t)
	m := redistest.InMemory(t)
	s.useRedis(m.Addr())
	if text := s.listText(ListOptions{}, 0); !strings.HasSuffix(text, "\nNo monitor has reported to Redis lately.\n") {
		t.Errorf("text of a Redis that nobody reports to:\n%s", text)
	}
	address := m.Addr()
	m.Close()
	s.useRedis(address)
	if got := s.list(ListOptions{}); got.Fleet == nil || got.Fleet.Error == "" {
		t.Errorf("fleet %+v, want an error", got.Fleet)
	}
	if text := s.listText(ListOptions{}, 0); !strings.Contains(text, "No deadlines are pending in overdue-monitor.\n\nThe totals of all monitors are unknown: ") {
		t.Errorf("text:\n%s", text)
	}
	s.source.CompanionsInRedis = true
	if _, err := List(t.Context(), s.source, ListOptions{}); err == nil || !strings.Contains(err.Error(), "read companions: ") {
		t.Errorf("List = %v, want an error of the companions", err)
	}
}

func TestTheListingCountsSeveralMonitorsAndMoreCompanions(t *testing.T) {
	l := &Listing{MonitorQueue: monitorQueue, More: true, Fleet: &Fleet{Monitors: 2}}
	s := &scene{T: t}
	text := s.text(func(w io.Writer) error { return l.WriteText(w, time.Now(), 0) })
	want := "No deadlines are pending in overdue-monitor.\n\n2 monitors reported to Redis. Their totals:\nThere are more companions: only the first 1000000 were read.\n"
	if text != want {
		t.Errorf("text %q, want %q", text, want)
	}
}
