// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const hostile = "<script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>\u202e\x1b[31m"

// Each page, with real messages in it, among them hostile ones: on the screen of a phone in the
// dark and on a large one by day.
func TestEveryPage(t *testing.T) {
	s := start(t)
	s.traffic()
	s.send("orders", "hostile", 1, 300*time.Millisecond, func(m *azservicebus.Message) {
		id, text := hostile, hostile
		m.MessageID, m.Subject, m.CorrelationID, m.Body = &id, &text, &text, []byte(hostile)
		m.ApplicationProperties = map[string]any{hostile: hostile}
	})
	s.dead("orders", 31)
	q := url.QueryEscape(hostile)
	pages := []struct {
		path, want string
		dense      bool // it has most to check
	}{
		{"", "Recent missed deadlines", true}, {"?q=" + q, "window.pwned", false}, {"entity?name=orders", "Mean lag", false}, {"entity?name=payments", "would be met by 99 of 100", true},
		{"entity?name=" + q, "No deadline of this queue or topic", false}, {"deadlines", "invoices", false}, {"deadlines?entity=invoices", "invoice-0003", false},
		{"deadletters", "events/Subscriptions/audit", false}, {"deadletters?entity=orders", "order-0003", true}, {"deadletters?entity=orders&q=" + q, "31", false}, {"deadletters?entity=orders&group=reason", "TTLExpiredException", false},
		{"deadletter?entity=orders&number=1", "tenant", false}, {"deadletter?entity=orders&number=31", "window.pwned", false}, {"deadletter?entity=orders&number=999", "not there any more", false},
		{"message", "Find a message", false}, {"message?entity=orders&id=order-0001", "in the dead-letter queue", true}, {"message?entity=orders&id=" + q, "The message is", false},
		{"preview?action=resubmit&entity=orders", "31 dead letters of orders", true}, {"preview?action=purge&entity=orders&q=" + q, "1 dead letter of orders", false},
		{"deadletters?entity=" + q, "not the name of a queue", false}, {"action?id=unknown", "not known", false}, {"nosuchpage", "there is no such page", false}, {"mute?entity=orders", "Its messages are still expired", false},
	}
	for _, on := range []screen{desktop, phone} {
		tab := s.open(on)
		for _, p := range pages {
			where := fmt.Sprintf("%s at %d", p.path, on.width)
			tab.visit(p.path)
			tab.shows("main", p.want)
			if tab.fits(where); on.dark || p.dense {
				tab.accessible(where)
			}
			if eval[bool](tab, "window.pwned === 1") {
				t.Errorf("%s has run a script of a message", where)
			}
		}
	}
}

// traffic makes deadlines that are met, missed and outstanding.
func (s *scene) traffic() {
	s.Helper()
	s.send("payments", "payment", 40, time.Minute, nil)
	s.receive("payments", 40)
	s.send("invoices", "invoice", 12, time.Hour, nil)
	s.send("events", "event", 4, 300*time.Millisecond, nil)
	for i := range 5 {
		s.send("orders", []string{"order", "refund", "return", "quote", "offer"}[i], 6, 300*time.Millisecond, nil)
		time.Sleep(400 * time.Millisecond)
		s.proc.Dashboard().Sample() // the graph shows what happened in between
	}
	s.dead("orders", 30)
}

// The page of an idle process says what to do.
func TestAnEmptySystem(t *testing.T) {
	tab := start(t).open(night)
	for path, want := range map[string]string{
		"": "No deadline was missed", "deadlines": "Each message with a deadline", "deadletters?entity=orders": "There are no dead letters", "entity?name=orders": "No message was dead-lettered",
	} {
		tab.visit(path)
		tab.shows("main", want)
		tab.accessible("empty " + path)
	}
}

// A keyboard is enough, and what the stream changes does not take its focus.
func TestAKeyboardIsEnough(t *testing.T) {
	s := start(t)
	s.send("orders", "order", 3, 300*time.Millisecond, nil)
	s.dead("orders", 3)
	tab := s.open(desktop)
	tab.visit("")
	tab.shows("#status", "Live")
	tab.run(chromedp.KeyEvent(kb.Tab))
	const focus = "document.activeElement.innerText"
	if focused := eval[string](tab, focus); focused != "Skip to content" {
		t.Errorf("the first stop of the Tab key is %q, want the link to the content", focused)
	}
	eval[any](tab, `document.querySelector('#entities a[href$="orders"]').focus()`)
	s.send("orders", "more", 5, 300*time.Millisecond, nil)
	tab.shows(`#missed`, "more-0005")
	if focused := eval[string](tab, focus); focused != "orders" {
		t.Errorf("the focus is on %q after an update, want it to stay on orders", focused)
	}
	tab.run(chromedp.KeyEvent(kb.Enter))
	tab.shows("h1", "orders")
	tab.run(chromedp.Click(chromedp.CSS("#pause")))
	tab.shows("#status", "Paused")
	tab.run(chromedp.Click(chromedp.CSS("#pause")))
	tab.shows("#status", "Live")
}

// From the list to the copies: some are ticked, previewed and resubmitted, with the token.
func TestAnActionInTheBrowser(t *testing.T) {
	s := start(t)
	s.send("orders", "order", 12, 300*time.Millisecond, nil)
	s.dead("orders", 12)
	tab := s.open(desktop)
	tab.visit("deadletters?entity=orders")
	for _, number := range []int{2, 5} {
		tab.run(chromedp.Click(chromedp.CSS(fmt.Sprintf(`input[name=number][value="%d"]`, number))))
	}
	tab.run(chromedp.Click(chromedp.CSS(`button[value=resubmit]`)))
	tab.shows("h2", "2 dead letters of orders")
	tab.run(chromedp.SendKeys(chromedp.CSS("#as"), "anna"), chromedp.SendKeys(chromedp.CSS("#why"), "the consumer is back"))
	tab.run(chromedp.SetValue(chromedp.CSS("#to"), "payments"), chromedp.SendKeys(chromedp.CSS("#token"), "wrong"), chromedp.SendKeys(chromedp.CSS("#within"), "1h"+kb.Enter))
	tab.shows("[role=alert]", "the token is wrong")
	tab.accessible("a wrong token")
	tab.run(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter))
	tab.shows("#action", "done")
	tab.shows("#action", "2 of 2 resubmitted to payments")
	tab.accessible("an action that is done")
	tab.visit("deadlines?entity=payments")
	tab.shows("main", "order-0005")
	tab.visit("deadletters?entity=orders")
	tab.shows("main", "Latest actions")
	tab.run(chromedp.Click(chromedp.CSS(`button[value=purge]`)))
	tab.shows("h2", "10 dead letters of orders")
	tab.run(chromedp.SendKeys(chromedp.CSS("#as"), "anna"), chromedp.SendKeys(chromedp.CSS("#why"), "nobody wants them"))
	tab.run(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter))
	tab.shows("#action", "10 of 10 purged")
	if n := deadLetters(s, "orders"); n != 0 {
		t.Errorf("%d dead letters are left, want none", n)
	}
}

func deadLetters(s *scene, name string) int {
	q, ok := s.proc.Embedded().Queue(name)
	if !ok {
		s.Fatalf("there is no queue %s", name)
	}
	return q.Counts().DeadLetter
}

// When the monitor stops, a page that is open says so, and when the process is gone as well.
func TestAStoppedMonitor(t *testing.T) {
	s := start(t)
	tab := s.open(phone)
	tab.visit("")
	tab.shows("#well", "serving")
	tab.shows("#well", "All is well")
	s.post("/drain")
	tab.shows("#well", "This process is stopped")
	tab.accessible("stopped")
	if err := s.proc.Stop(); err != nil {
		t.Error(err)
	}
	tab.shows("#status", "Connection lost")
}
