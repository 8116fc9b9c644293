// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
	"overdue/internal/history"
	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
	"overdue/monitor/mute"
)

// gauge makes one that is at a value.
func (s *scene) gauge(name string, value float64, labels ...string) {
	l := prometheus.Labels{}
	for i := 0; i+1 < len(labels); i += 2 {
		l[labels[i]] = labels[i+1]
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: l})
	g.Set(value)
	s.registry.MustRegister(g)
}

func TestTheFirstLineSaysWhetherAllIsWell(t *testing.T) {
	s := setup(t)
	s.deadlines.Add("orders", "met", 1)
	s.ask(t.Context())
	wantText(t, s.get(Path).Body.String(), `class="verdict good">All is well</h2>`)
}

// Each thing that is not well has a link to where the page says more.
func TestTheFirstLineNamesWhatIsNotWell(t *testing.T) {
	now := time.Now()
	s := setup(t, func(s *Source) {
		s.State = func() string { return "draining" }
		s.Fleet = func(context.Context) (redisstore.Fleet, error) {
			return redisstore.Fleet{Processes: []redisstore.Process{
				{Host: "a", Role: "monitor", Seen: now, NotReady: "key_refused"}, {Host: "b", Role: "proxy", Seen: now.Add(-5 * time.Minute), Gone: true}, {Host: "c", Role: "run", Seen: now, NotReady: "draining", Own: true},
			}}, nil
		}
		s.Mutes = func(context.Context) ([]mute.Mute, error) {
			return []mute.Mute{{Entity: "invoices", Until: now.Add(time.Hour), By: "ann", Reason: "upgrade"}}, nil
		}
	})
	s.results = []Check{{Name: "sink <b>", Failed: true, Message: "it refuses"}, {Name: "monitor queue"}}
	s.deadlines.Add("invoices", "unknown", 2)
	s.gauge("overdue_entity_missing", 1, "entity", "gone")
	s.gauge("overdue_certificate_expiry_timestamp_seconds", float64(now.Add(-time.Hour).Unix()), "use", "listen.tls")
	s.gauge("overdue_journal_companions", 3)
	s.gauge("overdue_config_restart_pending", 1, "setting", "monitorQueue")
	s.Sample()
	s.lag.WithLabelValues("orders").Observe(0.05)
	s.Sample()
	s.miss(t, "1", alert.EventData{Entity: "orders", MessageID: "m"})
	blind := alert.NewBlind("ns", "host-1", alert.Blind{From: now.Add(-time.Hour), To: now.Add(-30 * time.Minute), Reason: "the namespace did not answer", BlindCounts: alert.BlindCounts{Deadlines: 9, Late: 7}})
	if err := s.history.Record(taker{}).Alert(t.Context(), blind); err != nil {
		t.Fatal(err)
	}
	s.ask(t.Context())
	body := s.get(Path).Body.String()
	well := body[strings.Index(body, `id="well"`):strings.Index(body, `id="cards"`)]
	wantText(t, well, `class="verdict bad">7 things are not well; 5 to look at</h2>`,
		`<a href="#checks">This process is draining</a>`, `<a href="#alert-sinks">sink &lt;b&gt;: it refuses</a>`, `<a href="/dashboard/entity?name=gone">gone does not exist`,
		`<a href="/dashboard/entity?name=orders">orders: 1 missed in 15 minutes</a>`, "monitor on a is not ready: key_refused", "proxy on b was last seen 5 min ago",
		"certificate of listen.tls has expired, 1 h ago", `<a href="#blind-spans">Blind from`, `<a href="#unknown-deadlines">Outcome not known: 2 deadlines`,
		"3 companions wait in the journal", "restart: monitorQueue", `<a href="/dashboard/entity?name=invoices">invoices is muted until`)
	if strings.Contains(well, "on c") {
		t.Error("the process itself is found twice: its checks say what is wrong")
	}
	wantText(t, body, "the namespace did not answer", `<td class="n">9</td><td class="n bad">7</td>`, "host-1")
	wantText(t, s.get(Path+"entity?name=invoices").Body.String(), "Muted until", "by ann: upgrade")
}

// Queues with missed deadlines are one thing, however many they are.
func TestTheFirstLineNamesTheWorstQueue(t *testing.T) {
	lines := []*line{{name: "bills"}, {name: "orders"}, {name: "stock"}}
	missed := map[string]float64{"bills": 200, "orders": 1100}
	count := func(l *line) float64 { return missed[l.name] }
	text, link := missedOn(lines, "today", count)
	if text != "1,300 missed today on 2 queues, most on orders" || link != "/dashboard/?sort=missed#by-entity" {
		t.Errorf("%q with the link %q", text, link)
	}
	if text, link := missedOn(lines[:1], "today", count); text != "bills: 200 missed today" || link != "/dashboard/entity?name=bills" {
		t.Errorf("%q with the link %q", text, link)
	}
	if text, _ := missedOn(lines[2:], "today", count); text != "" {
		t.Errorf("%q, though nothing is missed", text)
	}
}

// A namespace that is down fails several checks, and is one thing that is not well.
func TestOneCauseIsOneLine(t *testing.T) {
	s := setup(t)
	const down = "the namespace cannot be reached"
	s.results = []Check{
		{Name: "upstream", Failed: true, Message: down}, {Name: "monitor queue", Failed: true, Message: "the monitor does not receive", Follows: true},
		{Name: "namespace", Failed: true, Message: down}, {Name: "sink a", Failed: true, Message: "no answer"},
	}
	s.ask(t.Context())
	wantText(t, s.get(Path).Body.String(), "2 things are not well", `<a href="#checks">upstream: the namespace`, `<a href="#alert-sinks">sink a: no answer</a>`)
}

func TestTheFleetIsShownWhereThereIsOne(t *testing.T) {
	var failure error
	s := setup(t, func(s *Source) {
		s.Fleet = func(context.Context) (redisstore.Fleet, error) {
			return redisstore.Fleet{
				Processes:   []redisstore.Process{{Host: "host-1", Role: "monitor", Version: "v9", Seen: time.Now(), Outstanding: map[string]int64{"elsewhere": 5}}},
				Outstanding: map[string]int64{"elsewhere": 5},
				Today:       history.Verdicts{"elsewhere": {"missed": 2, "met": 2}},
				Ever:        history.Verdicts{"elsewhere": {"missed": 1234}},
				Since:       time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC),
			}, failure
		}
	})
	s.ask(t.Context())
	body := s.get(Path).Body.String()
	wantText(t, body, `<th scope="row">host-1</th><td>monitor</td><td class="good">ready</td><td class="n wide">5</td>`, "elsewhere", "1,234 since 4 Mar 2026", "<strong>50\u00a0%</strong>",
		"All works; 1 thing to look at", `<a href="/dashboard/entity?name=elsewhere">elsewhere: 2 missed today</a>`)
	if strings.Contains(body, "this process alone") {
		t.Error("the page of a fleet says that the process is alone")
	}
	failure = errors.New("no route to <redis>")
	s.ask(t.Context())
	wantText(t, s.get(Path).Body.String(), "shows this process alone: no route to &lt;redis&gt;")
}

// A list of missed deadlines is that of the fleet. This process knows its own sinks alone.
func TestTheListHasWhatOtherProcessesMissed(t *testing.T) {
	m := redistest.InMemory(t)
	address, err := redisstore.ParseAddress("redis://" + m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	store, err := redisstore.Open(redisstore.Config{Address: address, Fleet: []string{"contoso", "monitor"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	s := setup(t)
	s.source.History = history.InMemory(history.Config{Metrics: s.registry, Shared: store.History()})
	s.history = s.source.History
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(id string, seconds int) alert.Event {
		deadline := at.Add(time.Duration(seconds) * time.Second)
		return alert.Event{ID: id, Type: alert.TypeMissed, Time: deadline, Data: alert.EventData{Entity: "orders", MessageID: id, Deadline: deadline}}
	}
	s.deadlines.Add("orders", "missed", 3)
	for _, e := range []alert.Event{event("own-1", 1), event("own-3", 3)} {
		if err := s.history.Record(taker{}).Alert(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []alert.Event{event("own-3", 3), event("their-2", 2), event("<b>", 0)} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.History().Add(t.Context(), redisstore.MissedRecord, []string{string(text)}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	list := regexp.MustCompile(`class="id"><a [^>]*>([^<]*)</a>.*?class="wide">([^<]*)</td></tr>`)
	want := func(target, want string) {
		t.Helper()
		var got []string
		for _, row := range list.FindAllStringSubmatch(s.get(target).Body.String(), -1) {
			got = append(got, row[1]+" by "+row[2])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s lists %q, want %q", target, got, want)
		}
	}
	s.ask(t.Context())
	want(Path, "own-3 by log, their-2 by another process, own-1 by log, &lt;b&gt; by another process")
	want(Path+"?q=their", "their-2 by another process")
	want(Path+"entity?name=orders", "own-3 by log, their-2 by another process, own-1 by log, &lt;b&gt; by another process")
	m.SetError("broken")
	s.ask(t.Context())
	want(Path, "own-3 by log, own-1 by log")
}

// Figures of today and since ever come from the history, so a restart does not make them 0.
func TestFiguresComeFromTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.history.Run(ctx) }() // it has no file
		s.deadlines.Add("orders", "missed", 68)
		time.Sleep(24 * time.Hour)
		s.deadlines.Add("orders", "missed", 2)
		s.deadlines.Add("orders", "met", 97)
		s.deadlines.Add("orders", "slot", 1)
		s.history.AddUnknown(history.Unknown{Entity: "orders", MessageID: "m-1", Deadline: time.Now(), Why: "its dead letters are <taken> away"})
		s.ask(t.Context())
		wantText(t, s.get(Path).Body.String(), "Missed today", "<strong>2</strong>", "70 since 1 Jan 2000", "<strong>98\u00a0%</strong>", "its dead letters are &lt;taken&gt; away", "entity=orders&amp;id=m-1")
	})
}

func TestSinksSaySinceWhenTheyWait(t *testing.T) {
	s := setup(t)
	s.deliveries.WithLabelValues("log", "ok").Add(1)
	s.deliveries.WithLabelValues("pager", "error").Add(1)
	s.gauge("overdue_sink_failing", 1, "sink", "pager")
	s.history.Queued("chat", "", time.Now(), &alert.Event{ID: "1", Type: alert.TypeMissed})
	s.deliveries.WithLabelValues("chat", "ok").Add(1)
	wantText(t, s.get(Path).Body.String(), "2 of 3 take events; chat queued since ", "1 event waits; pager failing.")
}

var rowName = regexp.MustCompile(`<th scope="row"><a href="/dashboard/entity\?name=[^"]*">([^<]*)</a>`)

func TestQueuesAreSortedAndFiltered(t *testing.T) {
	s := setup(t)
	for i, name := range []string{"b-orders", "A-orders", "c-invoices"} {
		s.deadlines.Add(name, "missed", i) // the last has most
		s.deadlines.Add(name, "met", 10)
	}
	s.lag.WithLabelValues("A-orders").Observe(0.05)
	s.gauge("overdue_entity_labels", 1, "entity", "c-invoices", "label_team", "Billing", "label_runbook", "https://wiki/run")
	for query, want := range map[string]string{
		"":                           "A-orders b-orders c-invoices",
		"?sort=-name":                "c-invoices b-orders A-orders",
		"?sort=missed":               "c-invoices A-orders b-orders",
		"?sort=-missed":              "b-orders A-orders c-invoices",
		"?sort=lag":                  "A-orders b-orders c-invoices", // the others have none, and come last
		"?sort=-lag":                 "A-orders b-orders c-invoices",
		"?queue=ORDERS&sort=missed":  "A-orders b-orders",
		"?queue=none":                "",
		"?queue=team%3Dbill":         "c-invoices",
		"?sort=%22%3E&queue=orders":  "A-orders b-orders",
		"?sort=outstanding&q=orders": "A-orders b-orders c-invoices",
	} {
		var got []string
		body := s.get(Path + query).Body.String()
		for _, m := range rowName.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	wantText(t, s.get(Path+"?queue=none").Body.String(), "No name or label contains “none”")
	wantText(t, s.get(Path+"entity?name=c-invoices").Body.String(), "team=Billing", `<a href="https://wiki/run"`)
	// The links and the forms keep what the others say, and so does the stream.
	body := s.get(Path + "?queue=orders&q=m-1&sort=missed").Body.String()
	wantText(t, body, `aria-sort="descending"><a href="/dashboard/?q=m-1&amp;queue=orders&amp;sort=-missed#by-entity">Missed</a>`,
		`data-events="/dashboard/events?q=m-1&amp;queue=orders&amp;sort=missed"`, `<input type="hidden" name="sort" value="missed">`, `<input type="hidden" name="queue" value="orders">`)
}

func TestDepthsAreShown(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		s.source.Namespace.Depths = func(_ context.Context, name string) (map[string]Depth, error) {
			if name != "orders" {
				return nil, fmt.Errorf("%s is not known", name)
			}
			return map[string]Depth{"Orders": {Messages: 12345, DeadLetters: 250, MoreDeadLetters: true}}, nil
		}
		s.deadlines.Add("orders", "met", 1)
		s.ask(s.Context())
		wantText(s.T, s.page(200, ""), `<td class="n">12,345</td>`, "250&#43;")
		wantText(s.T, s.page(200, "entity?name=orders"), "<strong>12,345</strong>", "<strong>250&#43;</strong>")
	})
}

func TestAProxyShowsItsSends(t *testing.T) {
	s := setup(t, func(s *Source) { s.Monitor = false })
	sends := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "overdue_sends_total"}, []string{"entity", "result"})
	s.registry.MustRegister(sends)
	sends.WithLabelValues("orders", "monitored").Add(40)
	sends.WithLabelValues("orders", "unmonitored").Add(2)
	sends.WithLabelValues("orders", "refused").Add(3)
	s.gauge("overdue_sends_in_flight", 4)
	s.gauge("overdue_sends_queued", 5)
	s.gauge("overdue_journal_companions", 6)
	wantText(t, s.get(Path).Body.String(), `orders</a></th><td class="n">–</td>`, `<td class="n">42</td><td class="n bad">3</td>`, "<strong>4</strong>", "5 wait for a place", "<strong>6</strong>")
}

func TestTimesAreAsCoarseAsPeopleTakeThem(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0: "now", 9 * time.Second: "now", 47 * time.Second: "40 s ago", 3*time.Minute + 50*time.Second: "4 min ago", 5 * time.Hour: "5 h ago",
		72 * time.Hour: "3 days ago", -90 * time.Minute: "in 2 h",
	} {
		if got := relative(now.Add(-ago), now); got != want {
			t.Errorf("%v ago = %q, want %q", ago, got, want)
		}
	}
	if got := relative(time.Time{}, now); got != "" {
		t.Errorf("no time = %q, want nothing", got)
	}
}

func TestAShareIsOnlyAllIfItIsAll(t *testing.T) {
	for share, want := range map[float64]string{1: "100 %", 0.99999: "> 99.99 %", 0.99983: "99.98 %", 0.5: "50 %", 0.12345: "12.3 %", 0.0001: "< 0.1 %", 0: "0 %"} {
		if got := strings.ReplaceAll(percent(share), "\u00a0", " "); got != want {
			t.Errorf("percent(%v) = %q, want %q", share, got, want)
		}
	}
	var none verdicts
	if share, ok := none.share(); ok || !math.IsNaN(share) {
		t.Errorf("the share of no deadlines = %v, %v, want none", share, ok)
	}
}
