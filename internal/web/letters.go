// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/entities"
)

const (
	maxReads     = 4 // pages that read the namespace at a time
	readTimeout  = 10 * time.Second
	countTimeout = 3 * time.Second
	maxPlaces    = 50    // dead-letter queues that are listed, with their counts
	maxLetters   = 50    // rows of one page
	maxScanned   = 5_000 // dead letters that are read for one page
	maxGroups    = 50    // reasons of one page
)

var errBusy = refusal{http.StatusServiceUnavailable, "other pages read the namespace at the moment; reload this page"}

// messagePages read the namespace: dead letters, deadlines that are pending, and what became of a
// message.
type messagePages struct {
	*site
	*Namespace
	source *Source
	reads  chan struct{} // holds a value for each page that reads the namespace
	jobs   jobList       // those of the actions
}

func (m *messagePages) register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+Path+"deadletters", m.deadLetters)
	mux.HandleFunc("GET "+Path+"deadletter", m.deadLetter)
	mux.HandleFunc("GET "+Path+"message", m.message)
	mux.HandleFunc("GET "+Path+"deadlines", m.pending)
}

// enter waits for one of the places of pages that read the namespace. ctx bounds the wait and the
// reading; leave ends it.
func (m *messagePages) enter(page context.Context, timeout time.Duration) (ctx context.Context, leave func(), err error) {
	ctx, cancel := context.WithTimeout(page, timeout)
	select {
	case m.reads <- struct{}{}:
		return ctx, func() { cancel(); <-m.reads }, nil
	case <-ctx.Done():
		cancel()
		return nil, nil, errBusy
	}
}

// A lettersView is the list of the dead letters of one place, or of the places.
type lettersView struct {
	page
	Entity, Reason, Query string
	NoReason              bool // only those for which none was given
	letterTable
	Grouped    bool
	Groups     []groupRow
	Group      string // link to the groups, or back from them
	Places     []placeRow
	MorePlaces bool
	Read       int
	Next       string // link to the next page; "" = this is the last
	Partial    bool   // the page ends at maxScanned, not at maxLetters
	Jobs       []*jobRow
}

// A letterTable is a list of dead letters, or of the messages of a broker.
type letterTable struct {
	Letters []letterRow
	CanAct  bool // they can be chosen
}

// A groupRow is the dead letters of one reason.
type groupRow struct {
	dlq.Group
	Link, Resubmit, Purge string // "" = there is none
}

// A placeRow is a dead-letter queue, and how many dead letters it has or why that is not known.
type placeRow struct {
	Name, Link, Error string
	alert.DeadLetters
}

type letterRow struct {
	Number, MessageID, SessionID, Reason, Description, Size string
	Enqueued                                                moment
	Properties                                              int
	Link, Message                                           string // to the dead letter, to its timeline; "" = it has none
	State, Deliveries                                       string // of a broker's message
	Expires                                                 moment // likewise
}

// HasSessions reports whether the list needs a column for sessions.
func (t *letterTable) HasSessions() bool {
	return slices.ContainsFunc(t.Letters, func(l letterRow) bool { return l.SessionID != "" })
}

// HasReasons reports whether the list needs columns for why they are dead letters.
func (t *letterTable) HasReasons() bool {
	return slices.ContainsFunc(t.Letters, func(l letterRow) bool { return l.Reason+l.Description != "" || l.State == "" })
}

// HasStates reports whether the list needs columns for what becomes of them.
func (t *letterTable) HasStates() bool {
	return slices.ContainsFunc(t.Letters, func(l letterRow) bool { return l.State != "" })
}

// deadLetters lists the dead letters of one place, or the places.
func (m *messagePages) deadLetters(w http.ResponseWriter, r *http.Request) {
	v := &lettersView{page: m.page("deadletters", "Dead letters"), Entity: strings.TrimSpace(parameter(r, "entity")), Reason: parameter(r, "reason"), Query: query(r), Jobs: m.jobs.rows()}
	v.NoReason, v.Grouped = r.URL.Query().Has("noreason"), parameter(r, "group") == "reason"
	v.CanAct = m.Actions != nil
	ctx, leave, err := m.enter(r.Context(), readTimeout)
	if err == nil {
		defer leave()
		if v.Entity == "" {
			v.Places, v.MorePlaces = m.places(ctx)
		} else {
			v.Title = "Dead letters of " + v.Entity
			err = v.read(ctx, m, r)
		}
	}
	show(w, "letters.html", v, err)
}

// A refusal is an error with the status of its answer.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// badRequest refuses parameters that make no sense.
func badRequest(err error) error { return refusal{http.StatusBadRequest, err.Error()} }

func statusOf(err error) int {
	var r refusal
	if errors.As(err, &r) {
		return r.status
	}
	return http.StatusBadGateway
}

// filterOf reads which dead letters a page is about, and says so for people.
func filterOf(r *http.Request) (f dlq.Filter, text string) {
	var parts []string
	reason := parameter(r, "reason")
	switch {
	case r.URL.Query().Has("noreason"):
		f.Reason = new(string)
		parts = append(parts, "without a reason")
	case reason != "":
		f.Reason = &reason
		parts = append(parts, "reason "+reason)
	}
	if q := query(r); q != "" {
		parts = append(parts, "containing "+q)
	}
	return f, strings.Join(parts, ", ")
}

// read reads one page of dead letters from a sequence number on, or their groups.
func (v *lettersView) read(ctx context.Context, m *messagePages, r *http.Request) error {
	place, err := dlq.ParsePlace(v.Entity)
	if err != nil {
		return badRequest(err)
	}
	if v.Grouped {
		return v.readGroups(ctx, m, r, place)
	}
	filter := []string{"reason", v.Reason, "q", v.Query}
	if v.NoReason {
		filter = append(filter, "noreason", "1")
	}
	v.Group = lettersLink(place, append(filter, "group", "reason")...)
	first, err := number64(r, "from")
	if err != nil {
		return err
	}
	now, next, more := time.Now(), int64(0), false
	wanted, _ := filterOf(r)
	err = dlq.Walk(ctx, m.Deadlines.Links, place, first, func(l *dlq.Letter) bool {
		if len(v.Letters) == maxLetters || v.Read == maxScanned {
			more = true
			return false
		}
		v.Read++
		next = l.Number + 1
		if wanted.Fits(l, now) && contains(l, v.Query) {
			v.Letters = append(v.Letters, newLetterRow(place, l, now))
		}
		return true
	})
	switch {
	case ctx.Err() != nil && v.Read > 0:
		more = true // the next page goes on from here
	case err != nil:
		return dlq.Failure(place, err)
	case v.Read == 0 && m.Deadlines.IsTopic(ctx, place):
		return badRequest(dlq.NoMessages(place)) // brokers differ in whether they refuse a peek there
	}
	if more {
		v.Partial = len(v.Letters) < maxLetters
		v.Next = lettersLink(place, append(filter, "from", strconv.FormatInt(next, 10))...)
	}
	return nil
}

// readGroups counts dead letters by reason.
func (v *lettersView) readGroups(ctx context.Context, m *messagePages, r *http.Request, place dlq.Place) error {
	s, partial, err := m.survey(ctx, r, place, nil, func(*dlq.Letter) {})
	if err != nil {
		return err
	}
	v.Read, v.Partial, v.Group = s.Read, partial || s.More, lettersLink(place, "q", v.Query)
	groups, others := s.Groups(maxGroups)
	for _, g := range groups {
		filter := []string{"q", v.Query, "reason", g.Reason}
		if g.Reason == "" {
			filter = append(filter, "noreason", "1")
		}
		row := groupRow{Group: *g}
		row.Reason = cmp.Or(cut(g.Reason), "no reason")
		if len(g.Reason) <= maxParameter { // a longer one fits into no form
			row.Link = lettersLink(place, filter...)
			row.Resubmit, row.Purge = previewLink(place, resubmit, filter...), previewLink(place, purge, filter...)
		}
		v.Groups = append(v.Groups, row)
	}
	if others > 0 {
		v.Groups = append(v.Groups, groupRow{Group: dlq.Group{Reason: "other reasons", Count: others}})
	}
	return nil
}

// survey reads the dead letters that the parameters of a page and the numbers choose. It is partial if
// the time of the page was not enough.
func (m *messagePages) survey(ctx context.Context, r *http.Request, place dlq.Place, numbers []int64, add func(*dlq.Letter)) (s *dlq.Survey, partial bool, err error) {
	now, q := time.Now(), query(r)
	wanted, _ := filterOf(r)
	wanted.Numbers = numbers
	s, err = dlq.Examine(ctx, m.Deadlines.Links, place, maxChosen, func(l *dlq.Letter) bool {
		return wanted.Fits(l, now) && contains(l, q)
	}, func(l *dlq.Letter) error { add(l); return nil })
	switch {
	case ctx.Err() != nil && s.Chosen > 0:
		return s, true, nil
	case err != nil:
		return s, false, dlq.Failure(place, err)
	case s.Read == 0 && m.Deadlines.IsTopic(ctx, place):
		return s, false, badRequest(dlq.NoMessages(place))
	}
	return s, false, nil
}

// contains reports whether one of the texts of a dead letter has q in it, whatever the case.
func contains(l *dlq.Letter, q string) bool {
	return isPart(q, l.MessageID, l.Description, l.CorrelationID, l.Subject) || l.SessionID != nil && isPart(q, *l.SessionID)
}

func newLetterRow(place dlq.Place, l *dlq.Letter, now time.Time) letterRow {
	row := letterRow{
		Number: strconv.FormatInt(l.Number, 10), Enqueued: momentOf(l.EnqueuedTime, now),
		MessageID: address.MessageName(l.MessageID, l.Number), Reason: l.Reason, Description: l.Description, Size: size(l), Properties: len(l.Properties),
		Link: Path + "deadletter?" + values("entity", place.String(), "number", strconv.FormatInt(l.Number, 10)),
	}
	if l.SessionID != nil {
		row.SessionID = *l.SessionID
	}
	row.Message = messageLink(place, row.MessageID)
	return row
}

// size is the size of a body.
func size(l *dlq.Letter) string {
	n := len(l.BodyBytes())
	if n < 1<<10 {
		return strconv.Itoa(n) + " B"
	}
	return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
}

// places are the dead-letter queues of the namespace that this process knows, with how many dead
// letters each has.
func (m *messagePages) places(ctx context.Context) (rows []placeRow, more bool) {
	all := m.knownPlaces(ctx)
	if more = len(all) > maxPlaces; more {
		all = all[:maxPlaces]
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	rows = make([]placeRow, len(all))
	forEach(all, func(i int, place dlq.Place) {
		n, err := m.DeadLetters(ctx, place.Entity, place.Subscription)
		rows[i] = placeRow{Name: place.String(), Link: lettersLink(place), DeadLetters: n}
		if err != nil {
			rows[i].Error = dlq.Failure(place, err).Error()
		}
	})
	return rows, more
}

// knownPlaces are the queues, and the subscriptions of topics, that the configuration or the metrics
// name.
func (m *messagePages) knownPlaces(ctx context.Context) (all []dlq.Place) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for _, name := range m.source.rootNames(ctx) {
		info, err := m.Deadlines.Describe(ctx, name)
		if err != nil || info.Kind != entities.Topic {
			all = append(all, dlq.Place{Entity: name})
			continue
		}
		for _, s := range info.Subscriptions {
			all = append(all, dlq.Place{Entity: name, Subscription: s.Name})
		}
	}
	return all
}

// stamp is a time in UTC, to the millisecond; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func lettersLink(place dlq.Place, more ...string) string {
	return Path + "deadletters?" + values(append([]string{"entity", place.String()}, more...)...)
}

func previewLink(place dlq.Place, action string, more ...string) string {
	return Path + "preview?" + values(append([]string{"action", action, "entity", place.String()}, more...)...)
}
