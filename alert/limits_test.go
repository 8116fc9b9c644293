// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"

	"overdue/internal/testing/testseed"
)

// pieces are what texts of hostile events and templates consist of: what grows when it is encoded,
// what is invisible, what joins its neighbour, and lines.
var pieces = []string{
	"a", "word ", "<", ">", "&", `"`, `\`, "*[_]", "{entity}", "\n", "\n\n", "\t", "\x00", "\x1b[31m", "\u0085", "\u2028", "\u202e", "\xff", "\u00a0",
	"é", "e\u0301", "注", "😀", "👩\u200d🚀", "👍🏽", "\U000e0041", "\u200d", "\u0301",
}

// hostile returns up to most pieces, of one kind or of all.
func hostile(r *rand.Rand, most int) string {
	n := r.IntN(most + 1)
	if r.IntN(2) == 0 {
		return strings.Repeat(pieces[r.IntN(len(pieces))], n)
	}
	var b strings.Builder
	for range n {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

func hostileNotification(r *rand.Rand) Notification {
	at := time.Unix(r.Int64N(1<<33), 0)
	n := Notification{
		Key: groupKey("s", "k", "g"), Source: SourceOf(hostile(r, 100), ""), Count: r.IntN(3) * 5000, Total: r.IntN(10_000), Since: at, Last: at,
		Resolved: r.IntN(4) == 0, WorstLag: time.Duration(r.Int64()), Labels: map[string]string{"type": TypeMissed},
	}
	for _, name := range []string{"entity", "subscription", "strategy", "reason"} {
		if r.IntN(4) > 0 {
			n.Labels[name] = hostile(r, 300)
		}
	}
	for range r.IntN(samples + 1) {
		n.Samples = append(n.Samples, Event{Type: TypeMissed, Subject: hostile(r, 128), Time: at, Data: EventData{
			Entity: hostile(r, 260), Subscription: hostile(r, 50), SessionID: hostile(r, 128), CorrelationID: hostile(r, 3000), DeadLetterReason: hostile(r, 4096),
		}})
		n.Oldest = &n.Samples[0]
	}
	return n
}

// hostileWording returns templates and links of a configuration, or the default ones.
func hostileWording(t *testing.T, r *rand.Rand) Text {
	t.Helper()
	template := func(most int) string {
		switch r.IntN(4) {
		case 0:
			return "" // the default
		case 1:
			return "{{range .Samples}}" + strings.ReplaceAll(hostile(r, most/10), "{entity}", "{{.Subject}}\n") + "{{end}}"
		case 2:
			return `{{if .Resolved}}{{end}} `
		}
		return strings.ReplaceAll(hostile(r, most), "{entity}", "x")
	}
	link := func() string {
		switch r.IntN(3) {
		case 0:
			return ""
		case 1:
			return "https://wiki.example.com/" + strings.Repeat([]string{"a", "&", "é", "{entity}"}[r.IntN(4)], r.IntN(240)) + "/{entity}"
		}
		return "https://wiki.example.com/" + strings.Repeat("a", r.IntN(1950)) + "/{entity}"
	}
	text, err := NewText(template(400), template(10_000))
	if err == nil {
		text, err = text.WithLinks(link(), link())
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func limitsRounds() int {
	if testseed.Chosen() {
		return 2000
	}
	return 50
}

// received is a server that hands over what was posted.
func received(t *testing.T) (address string, body func() []byte) {
	t.Helper()
	got := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- b
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []byte { return <-got }
}

func TestMessagesStayWithinTheLimitsOfServices(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	address, body := received(t)
	for range limitsRounds() {
		text, n := hostileWording(t, r), hostileNotification(r)
		for kind, check := range map[string]func(*testing.T, []byte){"slack": checkSlack, "teams": checkTeams, "pagerduty": checkPagerDuty} {
			a, err := NewChat(kind, "", HTTP{URL: address}, text)
			if kind == "pagerduty" {
				a, err = NewPagerDuty("", PagerDutyConfig{HTTP: HTTP{URL: address}, RoutingKey: "r"}, text)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Notify(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			check(t, body())
		}
		if t.Failed() {
			t.Fatalf("after %+v", n)
		}
	}
}

// checkSlack checks a message by docs.slack.dev/reference/block-kit/blocks.
func checkSlack(t *testing.T, body []byte) {
	t.Helper()
	var m struct {
		Text   string
		Blocks []struct {
			Type string
			Text struct{ Type, Text string }
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Blocks) == 0 || len(m.Blocks) > 50 || len(m.Text) > 40_000 {
		t.Errorf("Slack gets %d blocks and a text of %d bytes", len(m.Blocks), len(m.Text))
	}
	for _, b := range m.Blocks {
		shown, limit := b.Text.Text, map[string]int{"header": 150, "section": 3000}[b.Type]
		if b.Text.Type == "plain_text" {
			shown = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(shown)
		}
		if n := len(utf16.Encode([]rune(shown))); n > limit || strings.TrimSpace(shown) == "" {
			t.Errorf("a %s of Slack has %d characters, want 1 to %d that are not blank: %q", b.Type, n, limit, shown)
		}
	}
}

// checkTeams checks a message by learn.microsoft.com/microsoftteams/limits-specifications-teams.
func checkTeams(t *testing.T, body []byte) {
	t.Helper()
	var m struct {
		Attachments []struct {
			Content struct {
				Body    []struct{ Type, Text string }
				Actions []struct{ Title, URL string }
			}
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if len(body) > 28_000 {
		t.Errorf("Teams gets %d bytes", len(body))
	}
	for _, b := range m.Attachments[0].Content.Body {
		if strings.TrimSpace(b.Text) == "" {
			t.Errorf("a block of Teams has no text: %q", b)
		}
	}
	for _, a := range m.Attachments[0].Content.Actions {
		if u, err := url.Parse(a.URL); err != nil || u.Host != "wiki.example.com" {
			t.Errorf("an action of Teams leads to %q", a.URL)
		}
	}
}

// checkPagerDuty checks an event by developer.pagerduty.com/docs/send-alert-event.
func checkPagerDuty(t *testing.T, body []byte) {
	t.Helper()
	var m struct {
		DedupKey string `json:"dedup_key"`
		Payload  struct{ Summary, Source string }
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if n := utf8.RuneCountInString(m.Payload.Summary); len(body) > 512_000 || n == 0 || n > 1024 || len(m.DedupKey) > 255 || m.Payload.Source == "" {
		t.Errorf("PagerDuty gets %d bytes with a summary of %d characters, key %q, source %q", len(body), n, m.DedupKey, m.Payload.Source)
	}
}

// A line of a mail has 998 bytes at most, RFC 5322, section 2.1.1.
func TestLinesOfAMailStayWithinTheirLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	port, mails := mailServer(t, "250 ok")
	var to []string
	for i := range 50 {
		to = append(to, fmt.Sprintf(`"On call, %s %d" <oncall%d@example.com>`, strings.Repeat("é", 20), i, i))
	}
	for range 20 {
		a, err := NewEmail("", EmailConfig{Host: "127.0.0.1", Port: port, Security: noTLS, From: "o@example.com", To: to}, hostileWording(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Notify(t.Context(), hostileNotification(r)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(<-mails) {
			if len(line) > 998 {
				t.Fatalf("a line of a mail has %d bytes: %q", len(line), line)
			}
		}
	}
}

func TestTextsForShoutrrrStayWithinTheLimitsOfItsServices(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for range limitsRounds() {
		p, title, text, err := hostileWording(t, r).render(hostileNotification(r))
		if err != nil {
			t.Fatal(err)
		}
		for service, most := range shoutrrrLimits {
			shown := p
			a := &shoutrrr{service: service, titled: r.IntN(2) == 0}
			title, text := a.fitting(&shown, title, text)
			if most.title > 0 && len(title) > most.title || most.text > 0 && len(text) > most.text || title == "" || text == "" {
				t.Fatalf("%s gets a title of %d bytes and a text of %d, want at most %+v", service, len(title), len(text), most)
			}
		}
	}
	for service := range shoutrrrLimits {
		if !slices.Contains((&router.ServiceRouter{}).ListServices(), service) {
			t.Errorf("shoutrrr has no service %s", service)
		}
	}
}

func TestATextIsCutBetweenCharacters(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		limit      int
	}{
		{"abcdef", "abcdef", 6},
		{"abcdef", "ab…", 5},
		{"注注注", "注…", 6},
		{"ae\u0301\u0302bc", "a…", 7},
		{"a👩\u200d🚀👩\u200d🚀", "a👩\u200d🚀…", 20},
		{"👍🏽👍🏽", "👍🏽…", 12},
		{"\u0301\u0301\u0301", "…", 5},
		{"\u200d\u200d", "…", 4},
		{"abc", "", 2},
	} {
		if got := fit(tc.text, tc.limit, func(s string) int { return len(s) }); got != tc.want {
			t.Errorf("fit(%q, %d) = %q, want %q", tc.text, tc.limit, got, tc.want)
		}
	}
}

// A text that fits is not cut, and a message shows as much as the service takes.
func TestALongTextFillsAMessage(t *testing.T) {
	address, body := received(t)
	for _, text := range []string{strings.Repeat("<", 8000), strings.Repeat("x\n", 3999), strings.Repeat("注", 8000), strings.Repeat("😀", 8000)} {
		words, err := NewText("", text)
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewChat("teams", "", HTTP{URL: address}, words)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Notify(t.Context(), firing()); err != nil {
			t.Fatal(err)
		}
		if n := len(body()); n > maxChat || n < maxChat-100 && n < len(text) {
			t.Errorf("a text of %d bytes makes a message of %d, want nearly %d", len(text), n, maxChat)
		}
	}
}
