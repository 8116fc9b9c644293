// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/rest"
)

// defaultPage is how many entries a list has where a client does not say.
const defaultPage = 100

// An entry is an entity, a rule or the namespace.
type entry struct {
	title            string
	created, updated time.Time // created may be zero
	authored         bool
	content          func(writer)
}

// list writes the part of all that the client asks for, in the order of the names.
func list[T any](c *call, title string, all []T, toEntry func(T) entry) error {
	query := c.r.URL.Query()
	skip, err := count(query, "skip", 0)
	if err != nil {
		return err
	}
	top, err := count(query, "top", defaultPage)
	if err != nil {
		return err
	}
	entries := make([]entry, len(all))
	for i, v := range all {
		entries[i] = toEntry(v)
	}
	if entries, err = filtered(entries, query.Get("$filter")); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.title, b.title) })
	skip = min(skip, len(entries))
	end := skip + min(top, len(entries)-skip)
	next := ""
	if skip < end && end < len(entries) {
		query.Set("$skip", strconv.Itoa(end))
		query.Set("$top", strconv.Itoa(top))
		next = "?" + query.Encode()
	}
	c.writeFeed(title, entries[skip:end], next)
	return nil
}

func count(query url.Values, name string, absent int) (int, error) {
	s := query.Get("$" + name)
	if s == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, refusef(http.StatusBadRequest, "Parameter '%[1]s' should be non-negative integer.\r\nParameter name: %[1]s.", name)
	}
	return n, nil
}

// writeFeed answers with a page of a list. next is the query of the next page, "" where there is
// none.
func (c *call) writeFeed(title string, entries []entry, next string) {
	w := c.begin(http.StatusOK, "feed")
	defer w.flush()
	here := c.at.root(c.at.scheme()) + c.at.path()
	self := here + c.at.query()
	w.open("feed", "xmlns", nsAtom)
	w.text("title", title, "type", "text")
	w.text("id", self)
	w.text("updated", time.Now().UTC().Format(time.RFC3339))
	w.link("self", self)
	if next != "" {
		w.link("next", here+next) // the second of two links: that is how Python knows it
	}
	version := ""
	if c.version != "" {
		version = "?api-version=" + url.QueryEscape(c.version)
	}
	for _, e := range entries {
		path, link := c.at.listed(e.title)
		c.writeEntryIn(w, e, c.at.root(c.at.scheme())+path+version, link+version, "xml:base", self)
	}
	w.close("feed")
}

const publicServicesList = "This is the list of publicly-listed services currently available."

// writePublicServices answers with the feed of the namespace's public services, which are none.
func (c *call) writePublicServices(about string) {
	w := c.begin(http.StatusOK, "feed")
	defer w.flush()
	w.open("feed", "xmlns", nsAtom)
	w.text("title", atom.PublicServices, "type", "text")
	w.text("subtitle", about, "type", "text")
	w.text("id", "uuid:"+rest.NewID()+";id=1")
	w.text("updated", time.Now().UTC().Format(time.RFC3339))
	w.text("generator", "Service Bus 1.1")
	w.close("feed")
}

// WritePublicServices answers with the feed of a namespace's public services; about says what the
// namespace is.
func WritePublicServices(w http.ResponseWriter, r *http.Request, about string) {
	(&call{w: w, r: r}).writePublicServices(about)
}

// writeEntry answers with one entity. An update of a queue or topic does not say when that was
// made, and who reads a subscription or a rule is led to where the namespace has it.
func (c *call) writeEntry(status int, e entry) error {
	if c.r.Method == http.MethodPut && status == http.StatusOK && c.target.Subscription == "" {
		e.created = time.Time{}
	}
	w := c.begin(status, "entry")
	defer w.flush()
	scheme := c.at.scheme()
	if c.r.Method == http.MethodGet && c.target.Subscription != "" && c.version != "" {
		scheme, w.counts = "sb", "d3p1"
	}
	self := c.at.root(scheme) + c.at.path() + c.at.query()
	c.writeEntryIn(w, e, self, self, "xmlns", nsAtom)
	return nil
}

// begin writes the header of an answer that is a success.
func (c *call) begin(status int, kind string) writer {
	h := c.w.Header()
	if status != http.StatusCreated || c.target.Subscription != "" {
		c.tag() // an update has changed it
	}
	if c.target.Kind == address.QueueList || c.target.Kind == address.TopicList || c.target.Kind == address.NamespaceInfo {
		h.Del(rest.HeaderStrictTransport)
	}
	h.Set("Content-Type", "application/atom+xml;type="+kind+";charset=utf-8")
	h.Set("Transfer-Encoding", "chunked")
	c.w.WriteHeader(status)
	return newWriter(c.w)
}

// tag says when the queue or topic of the request was changed, if there is one. It says so in the
// service's way: in ticks of .NET, of a clock that has 300 in a second.
func (c *call) tag() {
	changed, ok := c.changed()
	if !ok {
		return
	}
	const unixEpoch = 62135596800                  // in seconds of the year 1
	thirds := (changed.Nanosecond()*3 + 5e6) / 1e7 // of a hundredth of a second
	c.w.Header().Set("ETag", strconv.FormatInt((changed.Unix()+unixEpoch)*1e7+int64((thirds*10+1)/3)*1e4, 10))
}

func (c *call) writeEntryIn(w writer, e entry, id, link string, attributes ...string) {
	w.open("entry", attributes...)
	w.text("id", id)
	w.text("title", e.title, "type", "text")
	if !e.created.IsZero() {
		w.text("published", e.created.UTC().Format(time.RFC3339))
	}
	w.text("updated", e.updated.UTC().Format(time.RFC3339))
	if e.authored {
		w.open("author")
		w.text("name", c.ns.name())
		w.close("author")
	}
	w.link("self", link)
	w.open("content", "type", "application/xml")
	e.content(w)
	w.close("content")
	w.close("entry")
}

// A filter of a list is one comparison or several with "and" between them: messageCount Gt 0,
// startswith(path, 'queue') eq true. NamespaceManager of the .NET Framework documents it at
// GetQueuesAsync. Words are compared without case.
var comparison = regexp.MustCompile(`(?i)^\s*(?:startswith\(\s*(\w+)\s*,\s*'((?:[^']|'')*)'\s*\)(?:\s+eq\s+(true|false))?` +
	`|(\w+)\s+(eq|ne|gt|ge|lt|le)\s+(?:'((?:[^']|'')*)'|([^\s']+)))\s*(?:$|and\s+)`)

// comparables are the properties that a filter may name: the element that has each, "" for the
// title, and the order of its values.
var comparables = map[string]struct {
	element string
	compare func(value, with string) (int, error)
}{
	"path":         {"", compareNames},
	"name":         {"", compareNames},
	"messagecount": {"MessageCount", compareNumbers},
	"sizeinbytes":  {"SizeInBytes", compareNumbers},
	"createdat":    {"CreatedAt", compareTimes},
	"updatedat":    {"UpdatedAt", compareTimes},
	"modifiedat":   {"UpdatedAt", compareTimes},
	"accessedat":   {"AccessedAt", compareTimes},
}

// filtered returns the entries for which a filter is true, all of them where it is "".
func filtered(entries []entry, filter string) (kept []entry, err error) {
	if strings.TrimSpace(filter) == "" {
		return entries, nil
	}
	for _, e := range entries {
		passes, err := e.passes(filter)
		if err != nil {
			return nil, badRequest("The filter '%.300s' is not valid: %v.", filter, err)
		}
		if passes {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

func (e entry) passes(filter string) (bool, error) {
	d, err := atom.Parse(strings.NewReader(markup(e.content)))
	if err != nil {
		return false, err
	}
	passes := true
	for rest := filter; rest != ""; {
		m := comparison.FindStringSubmatch(rest)
		if m == nil {
			return false, errors.New("it is no list of comparisons with 'and' between them")
		}
		rest = rest[len(m[0]):]
		p, known := comparables[strings.ToLower(m[1]+m[4])]
		if !known {
			return false, errors.New("there is no property '" + m[1] + m[4] + "' to compare")
		}
		value, with := e.title, strings.ReplaceAll(m[2]+m[6], "''", "'")+m[7]
		if p.element != "" {
			value = d.ChildText(p.element)
		}
		if m[1] != "" {
			begins := strings.HasPrefix(strings.ToLower(value), strings.ToLower(with))
			passes = passes && begins != strings.EqualFold(m[3], "false")
			continue
		}
		order, err := p.compare(value, with)
		if err != nil {
			return false, err
		}
		passes = passes && map[string]bool{
			"eq": order == 0, "ne": order != 0, "gt": order > 0, "ge": order >= 0, "lt": order < 0, "le": order <= 0,
		}[strings.ToLower(m[5])]
	}
	return passes, nil
}

func compareNames(value, with string) (int, error) {
	return cmp.Compare(strings.ToLower(value), strings.ToLower(with)), nil
}

func compareNumbers(value, with string) (int, error) {
	a, errA := strconv.ParseFloat(cmp.Or(value, "0"), 64)
	b, errB := strconv.ParseFloat(with, 64)
	return cmp.Compare(a, b), errors.Join(errA, errB)
}

func compareTimes(value, with string) (int, error) {
	a, errA := readTime(value)
	b, errB := readTime(with)
	return a.Compare(b), errors.Join(errA, errB)
}

// readTime reads a time without a zone as UTC. The last form is that of ToString in .NET.
func readTime(text string) (t time.Time, err error) {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly, "1/2/2006 3:04:05 PM"} {
		if t, err = time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return t, err
}
