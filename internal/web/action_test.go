// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/link"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const token = "a token of the test"

// An actionScene is a dashboard that may change dead letters, and keeps its lines of the log.
type actionScene struct {
	*namespaceScene
	userHeader string
	mu         sync.Mutex
	lines      []audit.Line
}

func withActions(t *testing.T, act func(*actionScene)) {
	t.Helper()
	withNamespace(t, func(ns *namespaceScene) {
		s := &actionScene{namespaceScene: ns}
		links, folder := ns.ns.Links(ns.T), ns.TempDir()
		ns.source.Namespace.Actions = &Actions{
			Token:      func() string { return token },
			UserHeader: func() string { return s.userHeader },
			Namespace:  "test",
			Folder:     func() (string, error) { return folder, nil },
			Sender: func(ctx context.Context, to string) (*link.Sender, func(), error) {
				out, err := links.Sender(ctx, to)
				if err != nil {
					return nil, nil, err
				}
				return out, func() { out.Close(ctx) }, nil
			},
			Audit: func(a audit.Line) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.lines = append(s.lines, a)
			},
		}
		s.Dashboard = New(ns.source)
		ctx, cancel := context.WithCancel(ns.Context())
		done := make(chan struct{})
		go func(d *Dashboard) { defer close(done); d.Run(ctx) }(s.Dashboard)
		act(s)
		cancel()
		<-done
	})
}

// preview opens a preview and returns its id.
func (s *actionScene) preview(query string) (id, body string) {
	s.Helper()
	body = s.page(200, "preview?"+query)
	m := regexp.MustCompile(`name="id" value="(\w+)"`).FindStringSubmatch(body)
	if m == nil {
		return "", body
	}
	return m[1], body
}

// post posts a form that says who and why, unless it has these fields.
func (s *actionScene) post(path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	all := url.Values{"as": {"anna"}, "why": {"a test"}}
	maps.Copy(all, form)
	r := httptest.NewRequest(http.MethodPost, Path+path, strings.NewReader(all.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Add(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// begin carries out a preview, and returns the page of the action.
func (s *actionScene) begin(form url.Values) string {
	s.Helper()
	w := s.post("act", form)
	if w.Code != http.StatusSeeOther {
		s.Fatalf("POST act %v = %d, want 303:\n%s", form, w.Code, w.Body)
	}
	return strings.TrimPrefix(w.Header().Get("Location"), Path)
}

// events are the audit's lines as text.
func (s *actionScene) events() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.lines {
		all = append(all, fmt.Sprintf("%s %s %s to %q filter %q by %s for %q: %d of %d, %v", a.Event, a.Action, a.Entity, a.To, a.Filter, a.Person, a.Why, a.Done, a.Chosen, a.Err))
	}
	return all
}

// waiting counts the messages of a queue, or of its dead-letter queue.
func (s *namespaceScene) waiting(path string) (n int) {
	s.Helper()
	err := dlq.WalkAt(s.Context(), s.source.Namespace.Deadlines.Links, path, 0, func(*dlq.Letter) bool { n++; return true })
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func TestAPurgeTakesOffWhatThePreviewShowed(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(12)...)
		id, body := s.preview("action=purge&entity=orders&number=3&number=5&number=12")
		wantText(s.T, body, "3 dead letters of orders", "<dt>TTLExpiredException</dt><dd class=\"n\">3</dd>", "m-0005", "Purged messages cannot be brought back.")
		s.expire("orders", numbered(2)...) // was shown to nobody
		page := s.begin(url.Values{"id": {id}, "token": {token}, "rate": {"0"}})
		synctest.Wait()
		time.Sleep(time.Minute)
		wantText(s.T, s.page(200, page), "3 of 3", "purged", "done")
		if n := s.waiting("orders/$DeadLetterQueue"); n != 11 {
			s.Errorf("%d dead letters are left, want 11", n)
		}
		want := []string{
			`started purge orders to "" filter "3 chosen by hand" by anna for "a test": 0 of 3, <nil>`,
			`ended purge orders to "" filter "3 chosen by hand" by anna for "a test": 3 of 3, <nil>`,
		}
		if got := s.events(); !slices.Equal(got, want) {
			s.Errorf("audit = %q, want %q", got, want)
		}
		if w := s.post("act", url.Values{"id": {id}, "token": {token}}); w.Code != http.StatusGone {
			s.Errorf("the same preview again = %d, want 410", w.Code)
		}
		wantText(s.T, s.page(200, "deadletters?entity=orders"), "Latest actions", "3 of 3", ">anna<")
	})
}

func TestAResubmissionSendsCopies(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(12)...)
		id, body := s.preview("action=resubmit&entity=orders&q=m-000")
		wantText(s.T, body, "9 dead letters of orders", "containing m-000", `value="orders"`)
		page := s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}, "ttl": {"1h"}, "within": {"30m"}})
		time.Sleep(time.Minute)
		wantText(s.T, s.page(200, page), "9 of 9", "resubmitted to again", "done")
		if n := s.waiting("orders/$DeadLetterQueue"); n != 3 {
			s.Errorf("%d dead letters are left, want 3", n)
		}
		if n := s.waiting("again"); n != 9 {
			s.Errorf("%d copies, want 9", n)
		}
	})
}

// copies are the messages of again.
func (s *actionScene) copies() (all []*dlq.Letter) {
	s.Helper()
	err := dlq.WalkAt(s.Context(), s.source.Namespace.Deadlines.Links, "again", 0, func(l *dlq.Letter) bool { all = append(all, l); return true })
	if err != nil {
		s.Fatal(err)
	}
	return all
}

func TestACopyCanBeEditedAndDelayed(t *testing.T) {
	withActions(t, func(s *actionScene) {
		const body = "\n<b>one</b>\ntwo"
		s.expire("orders", &azservicebus.Message{MessageID: new("m"), Body: []byte(body), ApplicationProperties: map[string]any{"tenant": "red", "old": "x", "n": int32(1)}})
		wantText(s.T, s.page(200, "deadletter?entity=orders&number=1"), `preview?action=resubmit&amp;entity=orders&amp;number=1">Resubmit…`, `action=purge&amp;entity=orders&amp;number=1">Purge…`)
		form := url.Values{"token": {token}, "to": {"again"}, "delay": {"10m"}, "edits": {"tenant=blue\r\n-old\r\nn=2\r\n"}}
		id, page := s.preview("action=resubmit&entity=orders&number=1")
		wantText(s.T, page, "spellcheck=\"false\">\n\n&lt;b&gt;one&lt;/b&gt;\ntwo</textarea>")
		if strings.Contains(page, `name="rate"`) {
			s.Error("there is a rate for one message")
		}
		form.Set("id", id)
		form.Set("body", strings.ReplaceAll(body, "\n", "\r\n"))
		s.begin(form)
		time.Sleep(5 * time.Minute)
		all := s.copies()
		if len(all) != 1 || all[0].State != link.Scheduled || string(all[0].BodyBytes()) != body || all[0].TimeToLive.Duration != time.Second ||
			all[0].Properties["tenant"] != "blue" || all[0].Properties["old"] != nil || all[0].Properties["n"] != int32(2) {
			s.Errorf("copies = %+v", all)
		}
		if got, want := s.lines[0].Edits, "n, -old, tenant"; got != want {
			s.Errorf("the log has the edits %q, want %q", got, want)
		}

		s.expire("orders", &azservicebus.Message{Body: []byte(body)})
		form.Del("edits")
		id, _ = s.preview("action=resubmit&entity=orders")
		form.Set("id", id)
		form.Set("body", "another")
		s.begin(form)
		time.Sleep(2 * time.Minute)
		if all := s.copies(); len(all) != 2 || string(all[1].BodyBytes()) != "another" {
			s.Errorf("copies = %+v, want one with the new body", all)
		}
	})
}

// An edit that a dead letter does not take is refused as a whole.
func TestAnEditThatDoesNotFitChangesNothing(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", &azservicebus.Message{ApplicationProperties: map[string]any{"n": int32(1)}}, &azservicebus.Message{})
		id, _ := s.preview("action=resubmit&entity=orders")
		page := s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}, "edits": {"n=x"}})
		time.Sleep(time.Minute)
		wantText(s.T, s.page(200, page), "failed", "dead letter 1, property &#34;n&#34;: its value is of type int32", "nothing was changed")
		if n := s.waiting("orders/$DeadLetterQueue"); n != 2 {
			s.Errorf("%d dead letters are left, want both", n)
		}
	})
}

// A form gives back no body that is not plain text, so it does not have it.
func TestABodyThatAFormWouldChangeCannotBeEditedThere(t *testing.T) {
	for name, body := range map[string]string{"bytes": "\xff", "returns": "a\r\nb", "hidden marks": "a\u202eb", "a long text": strings.Repeat("x", maxBody+1)} {
		withActions(t, func(s *actionScene) {
			s.expire("orders", &azservicebus.Message{Body: []byte(body)})
			id, page := s.preview("action=resubmit&entity=orders")
			if !strings.Contains(page, "overdue dlq resubmit --body-file") || strings.Contains(page, `name="body"`) {
				s.Errorf("%s: the form has the body", name)
			}
			s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}, "within": {"none"}, "body": {"another"}})
			time.Sleep(time.Minute)
			if all := s.copies(); len(all) != 1 || string(all[0].BodyBytes()) != body {
				s.Errorf("%s: copies = %+v, want one with the body as it was", name, all)
			}
		})
	}
}

func TestGroupsOfAReasonCanBeChosen(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(3)...)
		r, err := s.ns.Client(s.T).NewReceiverForQueue("orders", nil)
		if err != nil {
			s.Fatal(err)
		}
		sender, err := s.ns.Client(s.T).NewSender("orders", nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, reason := range []*string{nil, new("bad"), new("bad")} {
			if err := sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
				s.Fatal(err)
			}
			ms, err := r.ReceiveMessages(s.Context(), 1, nil)
			if err != nil {
				s.Fatal(err)
			}
			if err := r.DeadLetterMessage(s.Context(), ms[0], &azservicebus.DeadLetterOptions{Reason: reason}); err != nil {
				s.Fatal(err)
			}
		}
		wantText(s.T, s.page(200, "deadletters?entity=orders"), `deadletters?entity=orders&amp;group=reason">Group by reason`)
		page := s.page(200, "deadletters?entity=orders&group=reason")
		wantText(s.T, page, `reason=bad">bad</a></th><td class="n">2</td>`, `reason=TTLExpiredException">TTLExpiredException</a></th><td class="n">3</td>`,
			`noreason=1">no reason</a></th><td class="n">1</td>`, `preview?action=purge&amp;entity=orders&amp;reason=bad">Purge…`)
		wantText(s.T, s.page(200, "deadletters?entity=orders&noreason=1"), `placeholder="none given"`, `name="noreason" value="1"`, `>4</a>`)
		for query, want := range map[string]string{"noreason=1": "1 dead letter of orders", "reason=bad": "2 dead letters of orders"} {
			_, page := s.preview("action=resubmit&entity=orders&" + query)
			wantText(s.T, page, want)
		}
		id, _ := s.preview("action=purge&entity=orders&noreason=1")
		s.begin(url.Values{"id": {id}, "token": {token}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.waiting("orders/$DeadLetterQueue"); n != 5 || s.lines[0].Filter != "without a reason" {
			s.Errorf("%d dead letters are left, and the filter was %q; want 5, without a reason", n, s.lines[0].Filter)
		}
		s.source.Namespace.Actions = nil
		if page := s.page(200, "deadletters?entity=orders&group=reason"); strings.Contains(page, "preview?") {
			s.Error("a dashboard that only reads offers actions")
		}
		wantText(s.T, s.page(400, "deadletters?entity=events&group=reason"), "events is a topic")
	})
}

func TestOnlyTheTokenMakesAnAction(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(2)...)
		id, _ := s.preview("action=purge&entity=orders")
		for _, wrong := range []string{"", "a token of the tesT", token + " ", strings.Repeat("x", 5000)} {
			before := time.Now()
			w := s.post("act", url.Values{"id": {id}, "token": {wrong}})
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "the token is wrong") || strings.Contains(w.Body.String(), token) {
				s.Errorf("token %.20q = %d %s", wrong, w.Code, w.Body)
			}
			if took := time.Since(before); took < guessTime {
				s.Errorf("a wrong token took %v, want %v at least", took, guessTime)
			}
		}
		if got := s.events(); len(got) != 4 || !strings.HasPrefix(got[0], "refused purge orders") {
			s.Errorf("audit = %q, want four refusals", got)
		}
		if n := s.waiting("orders/$DeadLetterQueue"); n != 2 {
			s.Errorf("%d dead letters are left, want 2", n)
		}
		s.source.Namespace.Actions = nil
		s.Dashboard = New(s.source)
		if w := s.post("act", url.Values{"id": {id}, "token": {token}}); w.Code != http.StatusForbidden {
			s.Errorf("an action of a dashboard that only reads = %d, want 403", w.Code)
		}
		wantText(s.T, s.page(403, "preview?action=purge&entity=orders"), "only reads")
		wantText(s.T, s.page(200, "deadletters?entity=orders"), "This dashboard only reads")
	})
}

func TestWrongActionsAreExplained(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(2)...)
		for target, want := range map[string]string{
			"preview?action=drop&entity=orders":           "neither resubmit nor purge",
			"preview?action=purge&entity=a//b":            "not the name of a queue",
			"preview?action=purge&entity=events":          "events is a topic",
			"preview?action=purge&entity=orders&number=x": "number is not a sequence number",
		} {
			wantText(s.T, s.page(400, target), want)
		}
		wantText(s.T, s.page(502, "preview?action=purge&entity=none"), "there is no queue")
		wantText(s.T, s.page(200, "preview?action=purge&entity=orders&reason=Other"), "None of 2 matches")
		id, _ := s.preview("action=resubmit&entity=orders")
		for want, form := range map[string]url.Values{
			"say which queue or topic":       {"to": {"a//b"}},
			"there is no queue or topic":     {"to": {"none"}},
			"the deadline of each copy is a": {"to": {"orders"}, "within": {"soon"}},
			"the time to live is a duration": {"to": {"orders"}, "ttl": {"-1s"}},
			"the delay is a duration such":   {"to": {"orders"}, "delay": {"0.5"}},
			"no deadline is wanted, and the": {"to": {"orders"}, "within": {"none"}, "ttl": {"1h"}},
			"an edit is a line such as":      {"to": {"orders"}, "edits": {"tenant"}},
			"belongs to Overdue or to the b": {"to": {"orders"}, "edits": {"overdue-within=5m"}},
			"must be a number between":       {"to": {"orders"}, "rate": {"NaN"}},
			"which queue or topic gets the":  {"to": {"events/Subscriptions/audit"}},
			"a number between 0 and 1000000": {"to": {"orders"}, "rate": {"-1"}},
		} {
			form.Set("id", id)
			form.Set("token", token)
			w := s.post("act", form)
			if w.Code != http.StatusBadRequest {
				s.Errorf("%v = %d, want 400", form, w.Code)
			}
			wantText(s.T, w.Body.String(), want, `name="id" value="`+id+`"`)
		}
		if w := s.get(Path+"preview?action=purge&entity=orders", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
			s.Errorf("a preview for another site = %d, want 403", w.Code)
		}
		if w := s.post("act", url.Values{"id": {"unknown"}, "token": {token}}); w.Code != http.StatusGone {
			s.Errorf("an unknown preview = %d, want 410", w.Code)
		}
		time.Sleep(previewTime + time.Second)
		if w := s.post("act", url.Values{"id": {id}, "token": {token}, "to": {"orders"}}); w.Code != http.StatusGone {
			s.Errorf("an old preview = %d, want 410", w.Code)
		}
		s.page(404, "action?id=unknown")
		if w := s.get(Path + "events?page=action&id=unknown"); w.Code != http.StatusNotFound {
			s.Errorf("the stream of an unknown action = %d, want 404", w.Code)
		}
	})
}

func TestAnActionCanBeStopped(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(300)...)
		id, _ := s.preview("action=resubmit&entity=orders")
		page := s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}, "within": {"none"}, "rate": {"10"}})
		time.Sleep(10 * time.Second)
		wantText(s.T, s.page(200, page), "running", "Stop</button>")
		other, _ := s.preview("action=purge&entity=orders")
		if w := s.post("act", url.Values{"id": {other}, "token": {token}}); w.Code != http.StatusConflict {
			s.Errorf("a second action = %d, want 409", w.Code)
		}
		job := strings.TrimPrefix(page, "action?id=")
		if w := s.post("stop", url.Values{"id": {job}, "token": {"wrong"}}); w.Code != http.StatusForbidden {
			s.Errorf("stop without the token = %d, want 403", w.Code)
		}
		if w := s.post("stop", url.Values{"id": {job}, "token": {token}}); w.Code != http.StatusSeeOther {
			s.Errorf("stop = %d, want 303", w.Code)
		}
		time.Sleep(time.Minute)
		wantText(s.T, s.page(200, page), "stopped before the end", "continues where this one stopped")
		// Nothing is lost, and nothing is there twice, once the rest is resubmitted.
		id, _ = s.preview("action=resubmit&entity=orders")
		s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}, "within": {"none"}, "rate": {"0"}})
		time.Sleep(5 * time.Minute)
		if dead, copies := s.waiting("orders/$DeadLetterQueue"), s.waiting("again"); dead != 0 || copies != 300 {
			s.Errorf("%d dead letters and %d copies, want 0 and 300: %q", dead, copies, s.events())
		}
	})
}

func TestAnActionThatFailsSaysWhy(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(2)...)
		s.source.Namespace.Actions.Sender = func(context.Context, string) (*link.Sender, func(), error) {
			return nil, nil, errors.New("the namespace is away")
		}
		id, _ := s.preview("action=resubmit&entity=orders")
		page := s.begin(url.Values{"id": {id}, "token": {token}, "to": {"again"}})
		time.Sleep(time.Minute)
		wantText(s.T, s.page(200, page), "failed", "send to again: the namespace is away")
		if got := s.events(); len(got) != 2 || !strings.HasSuffix(got[1], "0 of 2, send to again: the namespace is away") {
			s.Errorf("audit = %q, want the failure", got)
		}
	})
}

// The log names a person, by the reverse proxy where there is one, and else as the form states.
func TestAnActionNamesAPersonAndAReason(t *testing.T) {
	withActions(t, func(s *actionScene) {
		s.expire("orders", numbered(2)...)
		id, body := s.preview("action=purge&entity=orders")
		wantText(s.T, body, `name="as"`, `name="why"`)
		for want, form := range map[string]url.Values{"say who you are": {"as": {" "}}, "say why": {"why": {""}}} {
			form.Set("id", id)
			form.Set("token", token)
			w := s.post("act", form)
			if w.Code != http.StatusBadRequest {
				s.Errorf("%v = %d, want 400", form, w.Code)
			}
			wantText(s.T, w.Body.String(), want)
		}

		s.userHeader = "X-User"
		wantText(s.T, s.page(403, "preview?action=purge&entity=orders"), "does not name one user in the header X-User")
		body = s.get(Path+"preview?action=purge&entity=orders", "X-User", "bert").Body.String()
		wantText(s.T, body, "The log names bert.")
		if strings.Contains(body, `name="as"`) {
			s.Error("there is a field for a name that does not count")
		}
		form := url.Values{"id": {id}, "token": {token}, "rate": {"0"}}
		for _, headers := range [][]string{nil, {"X-User", " "}, {"X-User", "bert", "X-User", "anna"}} {
			if w := s.post("act", form, headers...); w.Code != http.StatusForbidden {
				s.Errorf("an action with the headers %q = %d, want 403", headers, w.Code)
			}
		}
		if w := s.post("act", form, "X-User", "bert"); w.Code != http.StatusSeeOther {
			s.Fatalf("an action of bert = %d:\n%s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		want := []string{
			`started purge orders to "" filter "" by bert for "a test": 0 of 2, <nil>`,
			`ended purge orders to "" filter "" by bert for "a test": 2 of 2, <nil>`,
		}
		if got := s.events(); !slices.Equal(got, want) {
			s.Errorf("audit = %q, want %q", got, want)
		}
	})
}

// Where queues are made on demand, looking makes none.
func TestAViewMakesNoQueue(t *testing.T) {
	withNamespaceOf(t, func(c *broker.Config) { c.AutoCreate = true }, func(s *namespaceScene) {
		before := s.ns.Broker.Default().Changes()
		s.source.Namespace.Actions = &Actions{Token: func() string { return token }, UserHeader: func() string { return "" }}
		s.Dashboard = New(s.source)
		for _, target := range []string{"deadletters?entity=new", "preview?action=purge&entity=new", "message?entity=new&id=1", "deadlines?entity=new"} {
			s.page(200, target)
		}
		s.page(404, "deadletter?entity=new&number=1")
		if after := s.ns.Broker.Default().Changes(); after != before {
			s.Errorf("views have made %d queues, want none", after-before)
		}
	})
}
