// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/plural"
)

// brokerPath is where the pages of a broker are, but for the first one at [httpapi.ControlPath].
const brokerPath = httpapi.ControlPath + "page/"

// A BrokerSource is the embedded broker that pages show.
type BrokerSource struct {
	Broker  *broker.Broker
	Version string
	Note    string // what an app sees otherwise than in Azure; "" = nothing
}

// BrokerPages are the pages on the own port of the embedded broker: its entities and their messages,
// to see and to change them by hand. They keep no state.
type BrokerPages struct {
	site
	source  BrokerSource
	mux     *http.ServeMux
	streams streams // each ends with its request
}

// NewBrokerPages makes the pages of a broker. The caller decides who may see and use them, and keeps
// the forms of other sites away.
func NewBrokerPages(s BrokerSource) *BrokerPages {
	p := &BrokerPages{
		site: site{
			home:    httpapi.ControlPath,
			base:    brokerPath,
			role:    "broker",
			version: s.Version,
			nav:     []navLink{{"entities", "Entities", httpapi.ControlPath}},
		},
		source:  s,
		mux:     http.NewServeMux(),
		streams: streams{open: make(chan struct{}, maxStreams)},
	}
	mux := p.mux
	mux.HandleFunc("GET "+p.home+"{$}", p.list)
	mux.HandleFunc("GET "+p.base+"entity", p.entity)
	mux.HandleFunc("GET "+p.base+"message", p.message)
	mux.HandleFunc("GET "+p.base+"events", p.events)
	mux.HandleFunc("POST "+p.base+"send", p.act(sendTyped))
	mux.HandleFunc("POST "+p.base+"purge", p.act(purgeEntity))
	mux.HandleFunc("POST "+p.base+"resubmit", p.act(resubmitOne))
	mux.HandleFunc("POST "+p.base+"delete", p.act(deleteOne))
	p.serveAssets(mux)
	return p
}

// ServeHTTP serves the pages.
func (p *BrokerPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w)
	p.mux.ServeHTTP(w, r)
}

// A brokerView is the list of the entities of a namespace.
type brokerView struct {
	page
	queueTable
	Cards      []card
	Note       string
	Namespace  string
	Namespaces []navLink // others; none where there is one alone
}

// A queueTable is a list of entities.
type queueTable struct {
	Queues     []queueRow
	MoreQueues int
	Query      string // that the names have in them
}

type queueRow struct {
	queue.Counts
	Name, Link, Kind        string
	IsTopic, IsSubscription bool
}

// homeOf is the list of the entities of a namespace.
func (p *BrokerPages) homeOf(namespace string) string {
	return p.home + strings.TrimSuffix("?"+values("namespace", namespace), "?")
}

// list shows the entities.
func (p *BrokerPages) list(w http.ResponseWriter, r *http.Request) {
	v, err := p.listView(r)
	show(w, "broker.html", v, err)
}

func (p *BrokerPages) listView(r *http.Request) (*brokerView, error) {
	v := &brokerView{page: p.page("entities", "Entities"), Note: p.source.Note}
	n, err := httpapi.NamespaceOf(p.source.Broker, r)
	if err != nil {
		return v, badRequest(err)
	}
	v.Namespace, v.Home = n.Name(), p.homeOf(n.Name())
	if v.Namespace != "" {
		v.Title = "Entities of " + v.Namespace
	}
	v.Events = p.base + "events?" + values("namespace", n.Name(), "q", query(r))
	v.fill(n, query(r), func(path string) string { return entityLink(p.base, n.Name(), path) })
	v.Cards = namespaceCards(n)
	for _, other := range p.source.Broker.Namespaces() {
		if other != n && len(v.Namespaces) < maxPlaces {
			name := other.Name()
			v.Namespaces = append(v.Namespaces, navLink{name, cmp.Or(name, "default"), p.homeOf(name)})
		}
	}
	return v, nil
}

func entityLink(base, namespace, path string, more ...string) string {
	return base + "entity?" + values(append([]string{"path", path, "namespace", namespace}, more...)...)
}

// fill lists the entities of n that have q in their names: queues and topics by name, subscriptions
// behind their topics.
func (t *queueTable) fill(n *broker.Namespace, q string, link func(path string) string) {
	all := n.Entities()
	key := func(e *broker.Entity) (root, path string) {
		path = strings.ToLower(e.Path())
		root, _, _ = strings.Cut(path, strings.ToLower(between))
		return root, path
	}
	slices.SortFunc(all, func(a, b *broker.Entity) int {
		rootA, pathA := key(a)
		rootB, pathB := key(b)
		return cmp.Or(strings.Compare(rootA, rootB), strings.Compare(pathA, pathB))
	})
	t.Query = q
	for _, e := range all {
		if !isPart(q, e.Path()) {
			continue
		}
		if len(t.Queues) == maxRows {
			t.MoreQueues++
			continue
		}
		t.Queues = append(t.Queues, newQueueRow(e, link(e.Path())))
	}
}

// between stands in the path of a subscription behind its topic.
const between = "/Subscriptions/"

func newQueueRow(e *broker.Entity, link string) queueRow {
	row := queueRow{
		Counts:         e.Queue().Counts(),
		Name:           e.Path(),
		Link:           link,
		Kind:           e.Kind().String(),
		IsTopic:        e.Kind() == broker.KindTopic,
		IsSubscription: e.Kind() == broker.KindSubscription,
	}
	if row.IsSubscription {
		_, row.Name, _ = strings.Cut(row.Name, between)
	}
	return row
}

// namespaceCards are the sums of a namespace.
func namespaceCards(n *broker.Namespace) []card {
	var sum queue.Counts
	entities := 0
	for _, e := range n.Entities() {
		c := e.Queue().Counts()
		sum.Active += c.Active
		sum.Scheduled += c.Scheduled
		sum.Deferred += c.Deferred
		sum.DeadLetter += c.DeadLetter
		entities++
	}
	return countCards(sum, plural.Of(entities, "entity", "entities"))
}

// countCards are the counts of an entity or of many.
func countCards(c queue.Counts, of string) []card {
	return []card{
		{Name: "Active", Value: number(c.Active), Note: of},
		{Name: "Scheduled", Value: number(c.Scheduled), Note: "for later"},
		{Name: "Deferred", Value: number(c.Deferred), Note: "received by number"},
		{Name: "Dead letters", Value: number(c.DeadLetter), Note: "with a reason", Bad: c.DeadLetter > 0},
	}
}

// events keeps a list or an entity up to date.
func (p *BrokerPages) events(w http.ResponseWriter, r *http.Request) {
	if parameter(r, "path") == "" {
		p.streams.serve(w, r, []string{"cards", "queues"}, func() (any, error) { return p.listView(r) })
		return
	}
	p.streams.serve(w, r, []string{"cards", "messages", "queues"}, func() (any, error) { return p.entityView(r) })
}
