// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bufio"
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// publicServices is the title of the feed that stands for "there is no such
// queue or topic". The Go SDK knows it by this title.
const publicServices = "Publicly Listed Services"

// defaultPage is how many entries a list has where a client does not say.
const defaultPage = 100

// An entry is an entity, a rule or the namespace.
type entry struct {
	title, path      string
	created, updated time.Time // created may be zero
	authored         bool
	content          func(writer)
}

// page is part of a list.
type page struct {
	entries   []entry
	next, top int // where the next page begins, 0 where there is none, and how long it is
}

// list writes the part of all that the client asks for.
func list[T any](c *call, title string, all []T, toEntry func(T) entry) error {
	query := c.r.URL.Query()
	skip, err := count(query, "$skip", 0)
	if err != nil {
		return err
	}
	top, err := count(query, "$top", defaultPage)
	if err != nil {
		return err
	}
	from := min(skip, len(all))
	to := from + min(top, len(all)-from)
	p := page{top: top, entries: make([]entry, 0, to-from)}
	for _, v := range all[from:to] {
		p.entries = append(p.entries, toEntry(v))
	}
	if to < len(all) && to > from {
		p.next = to
	}
	return c.writeFeed(title, p)
}

func count(query url.Values, name string, absent int) (int, error) {
	s := query.Get(name)
	if s == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, badRequest("The value '%.100s' of the query parameter %s is no number from 0 on.", s, name)
	}
	return n, nil
}

// writeFeed answers with a list. It is written as it is made: a namespace may
// have ten thousand queues.
func (c *call) writeFeed(title string, p page) error {
	return c.writeFeedAbout(title, "", p)
}

// WritePublicServices answers with the feed of a namespace's public services,
// which are none; about says what the namespace is.
func WritePublicServices(w http.ResponseWriter, r *http.Request, about string) {
	c := &call{w: w, r: r, version: r.URL.Query().Get("api-version")}
	_ = c.writeFeedAbout(publicServices, about, page{}) // an error means that the client has gone
}

// writeFeedAbout is writeFeed with a subtitle, unless that is "".
func (c *call) writeFeedAbout(title, subtitle string, p page) error {
	w := c.begin(http.StatusOK, "feed")
	self := c.link(c.target.Path, c.query(c.r.URL.Query().Get("$skip"), c.r.URL.Query().Get("$top")))
	w.open("feed", "xmlns", nsAtom)
	w.text("title", title, "type", "text")
	if subtitle != "" {
		w.text("subtitle", subtitle, "type", "text")
	}
	w.text("id", self)
	w.text("updated", time.Now().UTC().Format(time.RFC3339))
	w.open("link", "rel", "self", "href", self)
	w.close("link")
	if p.next > 0 {
		// The second of two links: that is how Python knows it.
		w.open("link", "rel", "next", "href", c.link(c.target.Path, c.query(strconv.Itoa(p.next), strconv.Itoa(p.top))))
		w.close("link")
	}
	for _, e := range p.entries {
		c.writeEntryIn(w, e, "xml:base", self)
	}
	w.close("feed")
	w.flush()
	return nil
}

// writeEntry answers with one entity.
func (c *call) writeEntry(status int, e entry) error {
	w := c.begin(status, "entry")
	c.writeEntryIn(w, e, "xmlns", nsAtom)
	w.flush()
	return nil
}

// begin writes the header of an answer that is a success.
func (c *call) begin(status int, kind string) writer {
	c.w.Header().Set("Content-Type", "application/atom+xml;type="+kind+";charset=utf-8")
	c.w.WriteHeader(status)
	return writer{b: bufio.NewWriter(c.w)}
}

func (c *call) writeEntryIn(w writer, e entry, attributes ...string) {
	// The JavaScript SDK reads the names of an entity from the id.
	self := c.link(e.path, c.query("", ""))
	w.open("entry", attributes...)
	w.text("id", self)
	w.text("title", e.title, "type", "text")
	if !e.created.IsZero() {
		w.text("published", e.created.UTC().Format(time.RFC3339))
	}
	w.text("updated", e.updated.UTC().Format(time.RFC3339))
	if e.authored {
		w.open("author")
		w.text("name", c.name())
		w.close("author")
	}
	w.open("link", "rel", "self", "href", self)
	w.close("link")
	w.open("content", "type", "application/xml")
	e.content(w)
	w.close("content")
	w.close("entry")
}

// query is that of a link, in the order that the service has.
func (c *call) query(skip, top string) string {
	q := ""
	for _, p := range [][2]string{{"%24skip", skip}, {"%24top", top}, {"api-version", c.version}} {
		if p[1] != "" {
			q += "&" + p[0] + "=" + url.QueryEscape(p[1])
		}
	}
	return q[min(1, len(q)):]
}

// link is a URL on the host that the client asked.
func (c *call) link(path, query string) string {
	u := url.URL{Scheme: "http", Host: cmp.Or(c.r.Host, "localhost"), Path: "/" + path, RawQuery: query}
	if c.r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}
