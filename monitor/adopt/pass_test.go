// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/operations"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/brokertest"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const entityLife = time.Hour

// scene is the queue orders, whose default time to live is entityLife, and an Adopter.
type scene struct {
	*testing.T
	ns      *brokertest.Namespace
	client  *azservicebus.Client
	adopter *Adopter
}

func play(t *testing.T, act func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		s.ns = brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			orders := broker.QueueConfig{Name: "orders", DeadLetteringOnMessageExpiration: true, DefaultMessageTimeToLive: entityLife}
			c.Queues = []broker.QueueConfig{orders, {Name: "overdue-monitor"}}
		})
		s.client = s.ns.Client(t)
		links := s.ns.Links(t)
		sc, err := scheduler.New(scheduler.Config{Links: links, MonitorQueue: "overdue-monitor"})
		s.must(err)
		t.Cleanup(func() { _ = sc.Close(context.Background()) })
		s.adopter = New(Config{
			Links:        links,
			Scheduler:    sc,
			MonitorQueue: "overdue-monitor",
			Settings:     func(context.Context, string) judge.Settings { return judge.Settings{} },
			Describe:     s.describe,
			Operations:   operations.New(prometheus.NewRegistry()),
			Log:          zap.NewNop(),
			Latest:       time.Now,
			Adopted:      func(string, int) {},
		})
		act(s)
	})
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) describe(context.Context, string, time.Time) (entities.Info, error) {
	q, err := s.ns.Broker.Default().QueueInfo("orders")
	if err != nil {
		return entities.Info{}, entities.ErrNotFound
	}
	return entities.Info{Kind: entities.Queue, UpdatedAt: q.UpdatedAt, DefaultMessageTimeToLive: q.Config.DefaultMessageTimeToLive}, nil
}

// send sends n messages in one batch, and waits until they are old enough. life 0: they have the
// default time to live.
func (s *scene) send(name string, n int, life time.Duration) {
	s.Helper()
	sender, err := s.client.NewSender("orders", nil)
	s.must(err)
	for first := 0; first < n; first += 500 {
		batch, err := sender.NewMessageBatch(s.Context(), nil)
		s.must(err)
		for i := first; i < min(n, first+500); i++ {
			m := &azservicebus.Message{MessageID: new(fmt.Sprint(name, "-", i))}
			if life > 0 {
				m.TimeToLive = &life
			}
			s.must(batch.AddMessage(m, nil))
		}
		s.must(sender.SendMessageBatch(s.Context(), batch, nil))
	}
	s.must(sender.Close(s.Context()))
	time.Sleep(2 * search.SettledAge)
}

// change gives the queue another default time to live, and returns the request for that.
func (s *scene) change(life time.Duration) *request {
	s.Helper()
	ns := s.ns.Broker.Default()
	q, err := ns.QueueInfo("orders")
	s.must(err)
	q.Config.DefaultMessageTimeToLive = life
	updated, err := ns.UpdateQueue(q.Config)
	s.must(err)
	return &request{Since: sinceChange(updated.UpdatedAt)}
}

// expire has the broker dead-letter what has expired.
func (s *scene) expire() {
	s.Helper()
	r, err := s.client.NewReceiverForQueue("orders", nil)
	s.must(err)
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	_, _ = r.ReceiveMessages(ctx, 1, nil)
	s.must(r.Close(s.Context()))
}

// pass runs a pass, and returns the message-ids of its references.
func (s *scene) pass(r *request, positions map[string]position) (ids []string, p *pass) {
	s.Helper()
	p = &pass{Adopter: s.adopter, note: note{Entity: "orders", Request: r, Positions: positions}}
	s.must(p.run(s.Context()))
	clear(positions)
	maps.Copy(positions, p.Positions)
	for _, r := range p.refs {
		ids = append(ids, r.MessageID)
	}
	return ids, p
}

func (s *scene) want(got []string, want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("references (-want +got):\n%s", diff)
	}
}

func TestAPassContinuesWhereTheLastOneEnded(t *testing.T) {
	play(t, func(s *scene) {
		positions := map[string]position{}
		s.send("a", 2, 0)
		got, _ := s.pass(nil, positions)
		s.want(got, "a-0", "a-1")
		got, _ = s.pass(nil, positions)
		s.want(got)
		s.send("b", 1, time.Minute)
		got, _ = s.pass(nil, positions)
		s.want(got, "b-0")
		ns := s.ns.Broker.Default()
		q, err := ns.QueueInfo("orders")
		s.must(err)
		s.must(ns.DeleteQueue("orders"))
		_, err = ns.CreateQueue(q.Config)
		s.must(err)
		s.send("c", 1, 0)
		got, _ = s.pass(nil, positions)
		s.want(got, "c-0")
	})
}

// A message may have been a dead letter before, and was sent again with its properties.
func TestAMessageThatWasSentAgainWithThePropertiesOfItsDeadLetterIsAdopted(t *testing.T) {
	play(t, func(s *scene) {
		sender, err := s.client.NewSender("orders", nil)
		s.must(err)
		for _, reason := range []string{search.ReasonExpired, "MaxDeliveryCountExceeded"} {
			m := &azservicebus.Message{MessageID: &reason, ApplicationProperties: map[string]any{"DeadLetterReason": reason}}
			s.must(sender.SendMessage(s.Context(), m, nil))
		}
		time.Sleep(2 * search.SettledAge)
		got, _ := s.pass(nil, map[string]position{})
		s.want(got, search.ReasonExpired, "MaxDeliveryCountExceeded")
	})
}

func TestAPassIsBounded(t *testing.T) {
	play(t, func(s *scene) {
		const all = maxReferences + 10
		s.send("a", all, time.Minute)
		positions := map[string]position{}
		first, p := s.pass(nil, positions)
		if len(first) == 0 || len(first) == all || !p.more {
			t.Errorf("the first pass has read %d messages, and wants to go on: %v; want a part, and true", len(first), p.more)
		}
		second, p := s.pass(nil, positions)
		if len(first)+len(second) != all || p.more {
			t.Errorf("the second pass has read %d messages after %d, and wants to go on: %v; want the rest, and false", len(second), len(first), p.more)
		}
	})
}

// After a change one pass covers what is enqueued until all senders know, without reading it.
func TestAPassAfterAChange(t *testing.T) {
	play(t, func(s *scene) {
		const life = 10 * time.Second
		s.send("before", 1, 0)
		r := s.change(life)
		positions := map[string]position{}
		_, p := s.pass(r, positions)
		from := r.Since
		for _, ref := range p.refs {
			gap := ref.From.Sub(from)
			if ref.MessageID != "" || gap < 0 || gap > search.StampPrecision || ref.Within != life || !ref.Deadline.Equal(ref.From.Add(life)) {
				t.Errorf("%+v; want a window from %v on, with that time to live", ref, from)
			}
			from = ref.Until
		}
		if from.Before(r.Since.Add(senderLag - search.StampPrecision)) {
			t.Errorf("the windows end at %v, want the two minutes behind %v", from, r.Since)
		}
		if _, p := s.pass(r, p.Positions); len(p.refs) > 0 {
			t.Errorf("the second pass has %d windows, want none", len(p.refs))
		}
	})
}

// All messages are read where their companions are lost, and the dead letters of deadlines that
// nobody has watched since.
func TestAPassAfterTheMonitorQueueIsLost(t *testing.T) {
	play(t, func(s *scene) {
		s.send("watched", 1, 3*time.Second)
		time.Sleep(5 * time.Second)
		s.expire()
		s.send("own", 2, 10*time.Second)
		s.send("default", 2, 0)
		r := &request{Since: time.Now(), All: true}
		time.Sleep(10 * time.Second)
		s.expire()
		s.send("later", 1, time.Minute)
		got, _ := s.pass(r, map[string]position{})
		slices.Sort(got)
		s.want(got, "default-0", "default-1", "later-0", "own-0", "own-1")
	})
}

// A queue may be deleted and made again twice before the first request is written.
func TestWhatIsRequestedTwiceGetsOneNote(t *testing.T) {
	play(t, func(s *scene) {
		for range 2 {
			s.adopter.RequestAll([]string{"orders"}, time.Now())
			time.Sleep(time.Millisecond)
		}
		s.must(s.adopter.begin(s.Context()))
		q, _ := s.ns.Broker.Queue("overdue-monitor")
		if notes := q.Counts(); notes.Active+notes.Scheduled != 1 {
			s.Errorf("%+v on the monitor queue, want one note", notes)
		}
		if missing := len(s.adopter.requested); missing != 0 {
			s.Errorf("%d requests are left, want none", missing)
		}
	})
}
