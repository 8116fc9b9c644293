// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"overdue/internal/config"
)

const brokerSettings = `
listen: {admin: "127.0.0.1:0"}
broker:
  listen: 127.0.0.1:0
  autoCreate: true
  monitorQueue: false
  queues:
  - {name: orders, deadLetteringOnMessageExpiration: true, maxDeliveryCount: 3, lockDuration: 5m}
  - {name: invoices, requiresSession: true}
  - {name: payments}
  topics: [{name: events, subscriptions: [{name: audit, deadLetteringOnMessageExpiration: true}, {name: mail}]}]
`

// startBroker starts `overdue broker`. The pages are those of its own port.
func startBroker(t *testing.T) (s *scene, admin string) {
	t.Helper()
	s = startRole(t, config.RoleBroker, brokerSettings)
	admin = s.base
	page := s.proc.BrokerPage()
	s.root = "/_overdue/"
	s.base = strings.TrimSuffix(page, s.root)
	var err error
	if s.client, err = azservicebus.NewClientFromConnectionString(s.proc.OwnConnectionString(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close(t.Context()) }) // the process ends next
	return s, admin
}

// fill makes messages of every state.
func (s *scene) fill() {
	s.Helper()
	s.send("orders", "order", 12, time.Hour, nil)
	soon := time.Now().Add(2 * time.Hour)
	s.send("orders", "later", 3, time.Hour, func(m *azservicebus.Message) { m.ScheduledEnqueueTime = &soon })
	session := "customer-7"
	s.send("invoices", "invoice", 4, time.Hour, func(m *azservicebus.Message) { m.SessionID = &session })
	s.send("events", "event", 5, time.Hour, nil)
	r, err := s.client.NewReceiverForQueue("orders", nil)
	if err != nil {
		s.Fatal(err)
	}
	ms, err := r.ReceiveMessages(s.Context(), 5, nil)
	if err != nil || len(ms) < 5 {
		s.Fatalf("%d messages, %v", len(ms), err)
	}
	reason, description := "Rejected", "The customer is not known any more."
	for _, m := range ms[:3] {
		if err := r.DeadLetterMessage(s.Context(), m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description}); err != nil {
			s.Fatal(err)
		}
	}
	if err := r.DeferMessage(s.Context(), ms[3], nil); err != nil {
		s.Fatal(err)
	}
}

// Each page of the broker, with messages of every state and hostile ones, on the screen of a phone
// in the dark and on a large one by day.
func TestEveryPageOfTheBroker(t *testing.T) {
	s, admin := startBroker(t)
	s.fill()
	s.send("payments", "hostile", 1, time.Hour, func(m *azservicebus.Message) {
		id, text := hostile, hostile
		m.MessageID, m.Subject, m.CorrelationID, m.Body = &id, &text, &text, []byte(hostile)
		m.ApplicationProperties = map[string]any{hostile: hostile}
	})
	q := url.QueryEscape(hostile)
	pages := []struct{ path, want string }{
		{"", "events"}, {"?q=ord", "orders"}, {"?q=" + q, "No name contains"}, {"?namespace=" + q, "there is no namespace"},
		{"page/entity?path=orders", "order-0005"}, {"page/entity?path=orders&state=active", "order-0005"}, {"page/entity?path=orders&state=scheduled", "later-0001"},
		{"page/entity?path=orders&state=deferred", "order-0004"}, {"page/entity?path=orders&state=dead", "Rejected"}, {"page/entity?path=invoices", "invoice-0004"},
		{"page/entity?path=events", "audit"}, {"page/entity?path=events%2FSubscriptions%2Faudit", "event-0001"}, {"page/entity?path=payments", "window.pwned"},
		{"page/entity?path=" + q, "not the name of a queue"}, {"page/entity?path=none", "there is no queue"},
		{"page/message?path=orders&number=5", "locked"}, {"page/message?path=orders&state=dead&number=1", "The customer is not known"}, {"page/message?path=payments&number=1", "window.pwned"},
		{"page/message?path=orders&number=999", "not there any more"},
	}
	for _, on := range []screen{desktop, night, phone} {
		tab := s.open(on)
		for _, p := range pages {
			where := fmt.Sprintf("%s at %d", p.path, on.width)
			tab.visit(p.path)
			tab.shows("main", p.want)
			if tab.fits(where); on != night || p.path == "" {
				tab.accessible(where)
			}
			if eval[bool](tab, "window.pwned === 1") {
				t.Errorf("%s has run a script of a message", where)
			}
		}
	}
	s.base, s.root = admin, "/dashboard/"
	for _, on := range []screen{desktop, phone} {
		tab := s.open(on)
		tab.visit("")
		tab.shows("#queues", "audit")
		tab.shows("#cards", "Scheduled")
		tab.fits("the dashboard of a broker")
		tab.accessible("the dashboard of a broker")
	}
}

// From the list of entities to a message that is sent, seen, dead-lettered, resubmitted, deleted and
// purged.
func TestMessagesInTheBrowser(t *testing.T) {
	s, _ := startBroker(t)
	for _, on := range []screen{desktop, phone} {
		tab := s.open(on)
		tab.visit("")
		tab.shows("main", "a misspelt name fails")
		tab.press(`a[href$="path=orders"]`)
		tab.press("#send + details summary")
		tab.run(chromedp.SendKeys(chromedp.CSS("#body"), `{"order": 1, "total": 42.5}`), chromedp.SendKeys(chromedp.CSS("#properties"), "tenant=blue"+kb.Enter+"attempt=1"),
			chromedp.SendKeys(chromedp.CSS("#message-id"), "typed-1"), chromedp.SendKeys(chromedp.CSS("#ttl"), "soon"))
		tab.press("form[action*=send] button")
		tab.shows("[role=alert]", "the time to live is a duration")
		tab.accessible("a form that was refused")
		tab.run(chromedp.SetValue(chromedp.CSS("#ttl"), "1h"))
		tab.press("form[action*=send] button")
		tab.shows("[role=status].good", "The message is sent")
		tab.shows("#status", "Live")
		tab.shows("#messages", "typed-1")
		tab.press("#messages tbody a")
		tab.shows("main", `"total": 42.5`)
		tab.shows("main", "tenant")

		s.deadLetter("orders")
		tab.visit("page/entity?path=orders&state=dead")
		tab.press("#messages tbody a")
		tab.shows("main", "Not today")
		tab.press("form[action*=resubmit] button")
		tab.shows("[role=status].good", "A copy of the dead letter is sent")
		tab.shows("#messages", "There are none here")
		tab.visit("page/entity?path=orders")
		tab.shows("#messages", "typed-1")
		tab.press("#messages tbody a")
		tab.shows("main", "overdue-resubmitted-reason")
		tab.press("form[action*=delete] button")
		tab.shows("[role=status].good", "The message is deleted")
		tab.shows("#messages", "There are none here")

		s.send("orders", "order", 7, time.Hour, nil)
		tab.shows("#messages", "order-0007") // without a reload
		tab.press("#purge + details summary")
		tab.press("form[action*=purge] button")
		tab.shows("[role=status].good", "All messages are deleted")
		if q, _ := s.proc.Embedded().Queue("orders"); q.Counts().Active != 0 {
			t.Errorf("after the purge %+v are left", q.Counts())
		}
	}
}

// The picture of docs/broker/page.md.
func TestPictureOfTheBroker(t *testing.T) {
	s, _ := startBroker(t)
	s.fill()
	tab := s.open(screen{1100, 820, false})
	tab.visit("page/entity?path=orders")
	tab.shows("#messages", "locked")
	tab.shows("#status", "Live")
	tab.run(chromedp.Sleep(300 * time.Millisecond)) // what fades has faded
	tab.picture("broker-page.png")
}

// press clicks an element as soon as it is there. A list may be replaced at any moment, so it is not
// looked up and clicked in two steps.
func (t *tab) press(selector string) {
	t.Helper()
	t.wait(fmt.Sprintf(`(e => !!e && (e.click(), true))(document.querySelector(%q))`, selector))
}

// deadLetter dead-letters the next message of a queue.
func (s *scene) deadLetter(queue string) {
	s.Helper()
	r, err := s.client.NewReceiverForQueue(queue, nil)
	if err != nil {
		s.Fatal(err)
	}
	ms, err := r.ReceiveMessages(s.Context(), 1, nil)
	if err != nil {
		s.Fatal(err)
	}
	reason := "Not today"
	if err := r.DeadLetterMessage(s.Context(), ms[0], &azservicebus.DeadLetterOptions{Reason: &reason}); err != nil {
		s.Fatal(err)
	}
	if err := r.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
}
