// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/brokertest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[31m"

// A namespaceScene is a dashboard of a process with a namespace, whose queue orders and subscription
// events/Subscriptions/audit dead-letter what expires at once.
type namespaceScene struct {
	*scene
	*testing.T
	ns *brokertest.Namespace
}

func withNamespace(t *testing.T, act func(*namespaceScene)) {
	t.Helper()
	withNamespaceOf(t, func(*broker.Config) {}, act)
}

// withNamespaceOf is withNamespace for a broker that differs.
func withNamespaceOf(t *testing.T, change func(*broker.Config), act func(*namespaceScene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Expiry = queue.Eager
			c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "again"}, {Name: "overdue-monitor"}}
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit", DeadLetteringOnMessageExpiration: true}},
			}}}
			change(c)
		})
		links := ns.Links(t)
		act(&namespaceScene{T: t, ns: ns, scene: setup(t, func(s *Source) {
			s.Namespace = &Namespace{
				Deadlines: &deadlines.Source{
					Links: links, MonitorQueue: "overdue-monitor",
					Describe: func(_ context.Context, name string) (entities.Info, error) {
						if strings.EqualFold(name, "events") {
							return entities.Info{Kind: entities.Topic, Subscriptions: []entities.Subscription{{Name: "audit"}}}, nil
						}
						if name == "none" {
							return entities.Info{}, entities.ErrNotFound
						}
						return entities.Info{Kind: entities.Queue}, nil
					},
					Names: func(context.Context) []string { return []string{"orders", "events"} },
				},
				DeadLetters: func(ctx context.Context, entity, subscription string) (n alert.DeadLetters, err error) {
					err = dlq.Walk(ctx, links, dlq.Place{Entity: entity, Subscription: subscription}, 0, func(*dlq.Letter) bool { n.Count++; return true })
					return n, err
				},
			}
		})})
	})
}

// expire sends messages that expire, and waits until they have.
func (s *namespaceScene) expire(to string, ms ...*azservicebus.Message) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender(to, nil)
	if err != nil {
		s.Fatal(err)
	}
	life := time.Second
	for _, m := range ms {
		m.TimeToLive = &life
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func numbered(n int) (ms []*azservicebus.Message) {
	for i := range n {
		id := fmt.Sprintf("m-%04d", i+1)
		ms = append(ms, &azservicebus.Message{MessageID: &id, Body: []byte(id)})
	}
	return ms
}

// page gets a page and wants its status.
func (s *namespaceScene) page(status int, target string) string {
	s.Helper()
	w := s.get(Path + target)
	if w.Code != status {
		s.Errorf("GET %s = %d, want %d:\n%s", target, w.Code, status, w.Body)
	}
	return w.Body.String()
}

func TestTheDeadLettersOfEachPlaceAreCounted(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.expire("orders", numbered(3)...)
		s.expire("events", numbered(2)...)
		wantText(s.T, s.page(200, "deadletters"),
			`<a href="/dashboard/deadletters?entity=events%2FSubscriptions%2Faudit">events/Subscriptions/audit</a></th><td class="n">2</td>`,
			`<a href="/dashboard/deadletters?entity=orders">orders</a></th><td class="n">3</td>`)
	})
}

func TestDeadLettersComeInPages(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.expire("orders", numbered(maxLetters+7)...)
		first := s.page(200, "deadletters?entity=orders")
		wantText(s.T, first, "m-0001", fmt.Sprintf("m-%04d", maxLetters), "deadletters?entity=orders&amp;from=51", "Next page")
		if n := strings.Count(first, `<th scope="row"`); n != maxLetters {
			s.Errorf("%d rows on the first page, want %d", n, maxLetters)
		}
		second := s.page(200, "deadletters?entity=orders&from=51")
		if n := strings.Count(second, `<th scope="row"`); n != 7 || strings.Contains(second, "Next page") {
			s.Errorf("%d rows on the second page, want 7 and no further page:\n%s", n, second)
		}
	})
}

func TestDeadLettersAreFiltered(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.expire("orders", numbered(12)...)
		body := s.page(200, "deadletters?entity=orders&q=M-0007&reason=ttlexpiredexception")
		if n := strings.Count(body, `<th scope="row"`); n != 1 || !strings.Contains(body, "m-0007") {
			s.Errorf("%d rows, want that of m-0007 alone:\n%s", n, body)
		}
		wantText(s.T, s.page(200, "deadletters?entity=orders&reason=Other"), "No dead letter matches.")
		wantText(s.T, s.page(200, "deadletters?entity=overdue-monitor"), "There are no dead letters.")
	})
}

func TestALongDeadLetterQueueIsReadInSteps(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.expire("orders", numbered(maxScanned+1)...)
		wantText(s.T, s.page(200, "deadletters?entity=orders&q=m-5001"), "5000 read for this page", "None of these matches", "from=5001&amp;q=m-5001", "Search further")
		wantText(s.T, s.page(200, "deadletters?entity=orders&q=m-5001&from=5001"), ">m-5001<")
	})
}

func TestADeadLetterIsShownWhole(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		id, session, kind := "m-1", "s-1", "text/plain"
		s.expire("orders",
			&azservicebus.Message{MessageID: &id, SessionID: &session, ContentType: &kind, Body: []byte("two\nlines"), ApplicationProperties: map[string]any{"tenant": "blue"}},
			&azservicebus.Message{Body: []byte{0xff, 0x00}},
			&azservicebus.Message{Body: []byte(strings.Repeat("ü", maxBody))})
		wantText(s.T, s.page(200, "deadletter?entity=orders&number=1"), "<dd>m-1</dd>", "<dd>s-1</dd>", "<dd>text/plain</dd>", "<dt>tenant</dt><dd>blue</dd>",
			"two\nlines", "<dd>TTLExpiredException</dd>", "<dd>9 B</dd>", "message?entity=orders&amp;id=m-1")
		wantText(s.T, s.page(200, "deadletter?entity=orders&number=2"), "ff 00")
		wantText(s.T, s.page(200, "deadletter?entity=orders&number=3"), "The first 16384 of 32768 bytes", "<dd>32.0 KiB</dd>")
		wantText(s.T, s.page(404, "deadletter?entity=orders&number=99"), "not there any more")
	})
}

func TestATimelineIsThatOfExplain(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.expire("orders", numbered(1)...)
		var l *dlq.Letter
		err := dlq.Walk(s.Context(), s.source.Namespace.Deadlines.Links, dlq.Place{Entity: "orders"}, 0, func(found *dlq.Letter) bool { l = found; return false })
		if err != nil {
			s.Fatal(err)
		}
		s.miss(s.T, "event-1", alert.EventData{
			Entity: "orders", MessageID: l.MessageID, SequenceNumber: l.Number, EnqueuedTime: l.EnqueuedTime, Deadline: l.Due,
			DeadLetteredTime: l.Due.Add(14 * time.Millisecond), Strategy: "native",
		})
		wantText(s.T, s.page(200, "message?entity=orders&id=m-0001"), "The message is in the dead-letter queue.", "enqueued with sequence number 1",
			"dead-lettered 14ms after its deadline (native)", "overdue.deadline.missed event-1 sent to log")
		wantText(s.T, s.page(200, "message?entity=orders&id=none"), "The message is not there")
		wantText(s.T, s.page(200, ""), `href="/dashboard/message?entity=orders&amp;id=m-0001"`)
		s.source.History = nil
		wantText(s.T, s.page(200, "message?entity=orders&id=m-0001"), "Notifications are unknown")
	})
}

func TestWrongParametersAreExplained(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		for target, want := range map[string]string{
			"deadletters?entity=a//b":             "not the name of a queue",
			"deadletters?entity=orders&from=x":    "from is not a sequence number",
			"deadletters?entity=events":           "events is a topic",
			"deadletter?entity=orders&number=-1":  "number is not a sequence number",
			"deadletter?number=1":                 "not the name of a queue",
			"message?entity=orders":               "both an entity and a message ID are needed",
			"message?entity=sb://host/queue&id=1": "not the name of a queue",
		} {
			wantText(s.T, s.page(400, target), want)
		}
		wantText(s.T, s.page(502, "deadletters?entity=none"), "there is no queue &#34;none&#34;")
		wantText(s.T, s.page(502, "message?entity=none&id=1"), "there is no queue or topic &#34;none&#34;")
	})
}

func TestHostileMessagesStayText(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		id, text := hostile, hostile
		s.expire("orders", &azservicebus.Message{MessageID: &id, Subject: &text, CorrelationID: &text, Body: []byte(hostile), ApplicationProperties: map[string]any{hostile: hostile}})
		q := "%3Cscript%3Ealert(1)%3C/script%3E%22'%3E%3Cimg%20src=x%20onerror=alert(1)%3E%E2%80%AE%1B[31m"
		all := s.page(200, "deadletters?entity=orders&q="+q) + s.page(200, "deadletter?entity=orders&number=1") +
			s.page(200, "message?entity=orders&id="+q) + s.page(400, "deadletters?entity="+q) + s.page(400, "message?id=x&entity="+q)
		for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "\x1b", `value="<`} {
			if strings.Contains(all, bad) {
				s.Errorf("a page has %q unescaped", bad)
			}
		}
		wantText(s.T, all, "&lt;script&gt;alert(1)")
	})
}

func TestPagesThatReadAreBounded(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		for range maxReads {
			s.messages.reads <- struct{}{}
		}
		for _, target := range []string{"deadletters", "deadletter?entity=orders&number=1", "message?entity=orders&id=1"} {
			wantText(s.T, s.page(503, target), "other pages read the namespace")
		}
	})
}
