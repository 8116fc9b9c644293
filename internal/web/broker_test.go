// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
)

// A brokerScene is a broker with its pages.
type brokerScene struct {
	*testing.T
	broker *broker.Broker
	pages  *BrokerPages
}

func newBrokerScene(t *testing.T, change func(*broker.Config)) *brokerScene {
	t.Helper()
	cfg := broker.Config{
		Queues: []broker.QueueConfig{{Name: "orders"}, {Name: "unique", RequiresDuplicateDetection: true}, {Name: "sessions", RequiresSession: true}},
		Topics: []broker.TopicSetup{{
			TopicConfig:   broker.TopicConfig{Name: "events"},
			Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit"}}},
		}},
	}
	if change != nil {
		change(&cfg)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // nobody is connected
	return &brokerScene{t, b, NewBrokerPages(BrokerSource{Broker: b, Version: "v1", Note: "a note"})}
}

// ask asks for a page, or sends a form.
func (s *brokerScene) ask(path string, form url.Values, want int) *httptest.ResponseRecorder {
	s.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+httpapi.ControlPath+path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "http://localhost"+httpapi.ControlPath+path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	if w.Code != want {
		s.Fatalf("%s %s = %d, want %d: %s", r.Method, path, w.Code, want, alertIn(w.Body.String()))
	}
	return w
}

// alertIn is what a page complains of.
func alertIn(page string) string {
	if m := regexp.MustCompile(`role="alert">([^<]*)<`).FindStringSubmatch(page); m != nil {
		return m[1]
	}
	return ""
}

func (s *brokerScene) queue(path string) *queue.Queue {
	s.Helper()
	q, err := s.broker.Default().Inspect(path)
	if err != nil {
		s.Fatal(err)
	}
	return q
}

func (s *brokerScene) send(path string, m *rest.Message) {
	s.Helper()
	to, refusal := s.broker.Default().Target(path)
	if refusal != nil {
		s.Fatal(refusal)
	}
	encoded, err := httpapi.Encode(m)
	if err != nil {
		s.Fatal(err)
	}
	if refusal := to.Send(encoded); refusal != nil {
		s.Fatal(refusal)
	}
}

// take receives one message of a queue.
func (s *brokerScene) take(path string) queue.Delivery {
	s.Helper()
	c := s.queue(path).NewConsumer(queue.PeekLock)
	defer c.Close()
	c.AddCredit(1)
	ds, _, err := c.Take(nil)
	if err != nil || len(ds) != 1 {
		s.Fatalf("received %d messages of %s, %v; want one", len(ds), path, err)
	}
	return ds[0]
}

// deadLetter dead-letters one message of a queue.
func (s *brokerScene) deadLetter(path string) {
	s.Helper()
	if errs := s.queue(path).Settle(queue.Settlement{Outcome: queue.DeadLetter, DeadLetterReason: "Bad"}, s.take(path).LockToken); errs != nil {
		s.Fatal(errs)
	}
}

// numbersIn are the sequence numbers of a list.
func numbersIn(page string) (all []string) {
	for _, m := range regexp.MustCompile(`<th scope="row" class="n"><a href="[^"]*">(\d+)</a>`).FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// linkIn is where a link leads, from the root of the broker's pages; "" where there is none.
func linkIn(page, rel string) string {
	m := regexp.MustCompile(`<a href="/_overdue/([^"]*)" rel="` + rel + `"`).FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], "&amp;", "&")
}

func TestMessagesAreListedPageByPage(t *testing.T) {
	s := newBrokerScene(t, nil)
	for range maxLetters*2 + 5 {
		s.send("orders", &rest.Message{Body: []byte("m")})
	}
	var seen [][]string
	path := "page/entity?path=orders"
	for path != "" {
		page := s.ask(path, nil, http.StatusOK).Body.String()
		seen = append(seen, numbersIn(page))
		path = linkIn(page, "next")
	}
	if len(seen) != 3 || len(seen[0]) != maxLetters || seen[1][0] != fmt.Sprint(maxLetters+1) || len(seen[2]) != 5 {
		t.Fatalf("the pages are %v, want three, the last with 5 messages", seen)
	}
	path = linkIn(s.ask("page/entity?path=orders&from="+seen[2][0], nil, http.StatusOK).Body.String(), "prev")
	for i := 1; i >= 0; i-- {
		page := s.ask(path, nil, http.StatusOK).Body.String()
		if diff := cmp.Diff(seen[i], numbersIn(page)); diff != "" {
			t.Errorf("page %d on the way back: -want +got:\n%s", i, diff)
		}
		if next := linkIn(page, "next"); next == "" {
			t.Errorf("page %d on the way back leads nowhere", i)
		}
		path = linkIn(page, "prev")
	}
	if path != "" {
		t.Errorf("before the first page there is %s", path)
	}
}

// A page of a rare state ends before it has read a long queue.
func TestAPageOfARareStateReadsOnlySoMuch(t *testing.T) {
	s := newBrokerScene(t, nil)
	soon := time.Now().Add(time.Hour)
	for range maxScanned + 10 {
		if _, err := s.queue("orders").Send(queue.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	s.send("orders", &rest.Message{Broker: rest.BrokerProperties{ScheduledEnqueueTime: soon}})
	page := s.ask("page/entity?path=orders&state=scheduled", nil, http.StatusOK).Body.String()
	next := linkIn(page, "next")
	if got := numbersIn(page); len(got) != 0 || !strings.Contains(page, "Search further") || next == "" {
		t.Fatalf("the first page has %v and leads to %q, want none, and a search further", got, next)
	}
	if got := numbersIn(s.ask(next, nil, http.StatusOK).Body.String()); len(got) != 1 {
		t.Errorf("the second page has %v, want the one scheduled message", got)
	}
}

func TestASentMessageIsWhatWasTyped(t *testing.T) {
	s := newBrokerScene(t, nil)
	s.ask("page/send?path=sessions", url.Values{
		"body": {"first\r\nsecond"}, "properties": {"tenant=blue\r\nattempt=1\r\nratio = 0.5\r\nurgent=true\r\ndigits=\"1\"\r\nempty=\r\n"},
		"session-id": {"s"}, "message-id": {"m"}, "subject": {"x"}, "content-type": {"text/plain"}, "ttl": {"90s"}, "delay": {"PT5M"},
	}, http.StatusSeeOther)
	views, err := s.queue("sessions").Peek(nil, 0, 1)
	if err != nil || len(views) != 1 {
		t.Fatalf("%d messages, %v; want one", len(views), err)
	}
	l, err := letterOf(&views[0])
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"body": string(l.BodyBytes()), "session": *l.SessionID, "id": l.MessageID, "subject": l.Subject, "type": l.ContentType, "life": l.TimeToLive.Duration,
		"in": views[0].ScheduledEnqueueTime.Sub(views[0].EnqueuedTime).Round(time.Minute),
	}
	for name, value := range l.Properties {
		got["property "+name] = value
	}
	want := map[string]any{
		"body": "first\nsecond", "session": "s", "id": "m", "subject": "x", "type": "text/plain", "life": 90 * time.Second, "in": 5 * time.Minute,
		"property tenant": "blue", "property attempt": int64(1), "property ratio": 0.5, "property urgent": true, "property digits": "1", "property empty": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestADeadLetterIsResubmittedOnce(t *testing.T) {
	for _, test := range []struct{ from, at, to string }{
		{"orders", "orders", "orders"}, {"unique", "unique", "unique"}, {"events", "events/Subscriptions/audit", "events/Subscriptions/audit"},
	} {
		s := newBrokerScene(t, nil)
		s.send(test.from, &rest.Message{Body: []byte("hello"), Broker: rest.BrokerProperties{MessageID: "m", TimeToLive: time.Hour}})
		s.deadLetter(test.at)
		path := "page/resubmit?state=dead&number=1&path=" + url.QueryEscape(test.at)
		s.ask(path, url.Values{}, http.StatusSeeOther)
		s.ask(path, url.Values{}, http.StatusNotFound)
		if n := s.queue(test.at).Counts(); n.DeadLetter != 0 || n.Active != 1 {
			t.Fatalf("%s: %+v are left, want the copy alone", test.at, n)
		}
		d := s.take(test.to)
		l, err := letterOf(&d.View)
		if err != nil {
			t.Fatal(err)
		}
		if body := string(l.BodyBytes()); body != "hello" || l.TimeToLive.Duration != time.Hour || l.Reason != "" {
			t.Errorf("%s: the copy has the body %q, lives for %v and has the reason %q", test.at, body, l.TimeToLive, l.Reason)
		}
		if same := l.MessageID == "m"; same == (test.at == "unique") {
			t.Errorf("%s: the copy has the message-id %q", test.at, l.MessageID)
		}
	}
}

func TestRefusalsOfTheBrokersPages(t *testing.T) {
	s := newBrokerScene(t, nil)
	s.send("orders", &rest.Message{Body: []byte("dead")})
	s.send("orders", &rest.Message{Body: []byte("alive")})
	s.deadLetter("orders")
	dead := s.take("orders/$DeadLetterQueue")
	none := url.Values{}
	for _, test := range []struct {
		path string
		form url.Values
		code int
		why  string
	}{
		{"?namespace=t1", nil, http.StatusBadRequest, "there is no namespace"},
		{"page/entity?path=none", nil, http.StatusNotFound, "there is no queue"},
		{"page/entity?path=orders/Subscriptions/x", nil, http.StatusNotFound, "there is no queue"},
		{"page/entity?path=%00", nil, http.StatusBadRequest, "not the name of a queue"},
		{"page/entity?path=orders&state=gone", nil, http.StatusBadRequest, "state is none of"},
		{"page/entity?path=orders&from=-1", nil, http.StatusBadRequest, "from is not a sequence number"},
		{"page/entity?path=orders&upto=x", nil, http.StatusBadRequest, "upto is not a sequence number"},
		{"page/message?path=orders&number=99", nil, http.StatusNotFound, "not there any more"},
		{"page/send?path=orders", url.Values{"ttl": {"soon"}}, http.StatusBadRequest, "the time to live"},
		{"page/send?path=orders", url.Values{"delay": {"-1s"}}, http.StatusBadRequest, "becomes active"},
		{"page/send?path=orders", url.Values{"properties": {"tenant"}}, http.StatusBadRequest, "a property is a line"},
		{"page/send?path=orders", url.Values{"message-id": {strings.Repeat("x", 129)}}, http.StatusConflict, "128"},
		{"page/send?path=orders", url.Values{"body": {strings.Repeat("x", 300<<10)}}, http.StatusConflict, "is the most"},
		{"page/send?path=orders", url.Values{"body": {strings.Repeat("x", maxForm)}}, http.StatusRequestEntityTooLarge, "has more than"},
		{"page/send?path=sessions", url.Values{"body": {"x"}}, http.StatusConflict, "SessionId was not set"},
		{"page/send?path=none", none, http.StatusNotFound, "there is no queue"},
		{"page/resubmit?path=orders&number=2", none, http.StatusBadRequest, "only a dead letter"},
		{"page/resubmit?path=orders&state=dead&number=1", none, http.StatusConflict, "a receiver has locked"},
		{"page/delete?path=orders&number=99", none, http.StatusNotFound, "not there any more"},
		{"page/purge?path=none", none, http.StatusNotFound, "there is no queue"},
	} {
		if why := alertIn(s.ask(test.path, test.form, test.code).Body.String()); !strings.Contains(why, test.why) {
			t.Errorf("%s: %q, want %q", test.path, why, test.why)
		}
	}
	s.ask("page/send?path=orders", nil, http.StatusMethodNotAllowed)
	if n := s.queue("orders").Counts(); n.Active != 1 || n.DeadLetter != 1 {
		t.Errorf("after refusals alone there is %+v", n)
	}
	if err := s.queue("orders/$DeadLetterQueue").Complete(dead.LockToken); err != nil {
		t.Errorf("Complete of the locked dead letter = %v, want no trace of the refusals", err)
	}
}

func TestMessagesAreDeletedOneByOneAndTogether(t *testing.T) {
	s := newBrokerScene(t, nil)
	for range 4 {
		s.send("orders", &rest.Message{Body: []byte("m")})
	}
	s.deadLetter("orders")
	s.ask("page/delete?path=orders&number=2", url.Values{}, http.StatusSeeOther)
	if n := s.queue("orders").Counts(); n.Active != 2 || n.DeadLetter != 1 {
		t.Errorf("after one was deleted there is %+v", n)
	}
	s.ask("page/purge?path=orders&state=dead", url.Values{}, http.StatusSeeOther)
	if n := s.queue("orders").Counts(); n.Active != 2 || n.DeadLetter != 0 {
		t.Errorf("after a purge of dead letters there is %+v", n)
	}
	s.ask("page/purge?path=orders", url.Values{}, http.StatusSeeOther)
	if n := s.queue("orders").Counts(); n.Active != 0 {
		t.Errorf("after a purge there is %+v", n)
	}
}

func TestPagesKeepToTheirNamespace(t *testing.T) {
	s := newBrokerScene(t, func(c *broker.Config) { c.Isolate = true })
	s.ask("page/send?path=orders&namespace=t1", url.Values{"body": {"x"}}, http.StatusSeeOther)
	if n := s.queue("orders").Counts(); n.Active != 0 {
		t.Errorf("the default namespace has %+v, want nothing", n)
	}
	list := s.ask("", nil, http.StatusOK).Body.String()
	if !strings.Contains(list, `<a href="/_overdue/?namespace=t1">t1</a>`) {
		t.Errorf("the list does not lead to the other namespace:\n%s", list)
	}
	page := s.ask("page/entity?path=orders&namespace=t1", nil, http.StatusOK).Body.String()
	if got := numbersIn(page); len(got) != 1 || !strings.Contains(page, "number=1&amp;path=orders&amp;namespace=t1") && !strings.Contains(page, "namespace=t1&amp;number=1&amp;path=orders") {
		t.Errorf("the page of t1 lists %v, or its links lose the namespace:\n%s", got, page)
	}
}

// A form gives a message that the broker takes, or a refusal.
func FuzzSendForm(f *testing.F) {
	f.Add("body", "a=1\nb=\"x\"", "text/plain", "m", "s", "1h", "5m")
	f.Add("\xff", "=\n", "\x00", "\xff", "", "-1s", "P1Y")
	f.Fuzz(func(t *testing.T, body, properties, contentType, id, session, life, delay string) {
		form := sendForm{
			Body:        body,
			Properties:  properties,
			ContentType: contentType,
			MessageID:   id,
			SessionID:   session,
			Life:        life,
			Delay:       delay,
		}
		m, err := form.message(time.Now())
		if err != nil {
			return
		}
		encoded, err := httpapi.Encode(m)
		if err != nil {
			return
		}
		b, err := broker.New(broker.Config{Queues: []broker.QueueConfig{{Name: "q"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		to, refusal := b.Default().Target("q")
		if refusal != nil {
			t.Fatal(refusal)
		}
		if to.Send(encoded) != nil {
			return
		}
		pages := NewBrokerPages(BrokerSource{Broker: b})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+brokerPath+"entity?path=q", nil))
		if w.Code != http.StatusOK {
			t.Errorf("the list of a message that was taken = %d: %s", w.Code, alertIn(w.Body.String()))
		}
	})
}

func TestTheDashboardOfABrokerListsItsEntities(t *testing.T) {
	b := newBrokerScene(t, nil)
	b.send("orders", &rest.Message{Body: []byte("m")})
	const address = "http://127.0.0.1:5673/_overdue/"
	for _, alone := range []bool{true, false} {
		s := setup(t, func(s *Source) { s.Broker = &LocalBroker{Broker: b.broker, URL: address, Alone: alone} })
		page := s.get(Path).Body.String()
		for text, want := range map[string]bool{
			`<a href="` + address + `">`:                         true,
			`<a href="` + address + `page/entity?path=orders">`:  alone,
			`<span class="name">Scheduled</span>`:                alone,
			`<span class="name">Outstanding</span>`:              !alone,
			`<a href="/dashboard/deadlines">Deadlines</a>`:       !alone,
			"No deadline was missed since this process started.": !alone,
		} {
			if strings.Contains(page, text) != want {
				t.Errorf("a broker alone: %v; the overview has %s: %v, want %v", alone, text, !want, want)
			}
		}
	}
}
