// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
	"overdue/internal/servicebus/link"
)

// Actions are what a dashboard can change. All fields are required.
type Actions struct {
	Token      func() string // that each action has to give
	UserHeader func() string // in which the reverse proxy names the user; "" = whoever acts types a name
	Namespace  string        // by its host; journals go by it
	Folder     func() (string, error)
	// Sender sends to an entity as an app does, so that copies have companions. done ends it.
	Sender func(ctx context.Context, to string) (out *link.Sender, done func(), err error)
	Audit  func(audit.Line)
}

// An actor is who asks for an action, and why, in the form of one.
type actor struct {
	User       string // that the reverse proxy names; "" = whoever acts types a name
	Name, Why  string // that were typed
	HasNoActor bool   // the reverse proxy has named nobody: nobody can act
}

// actorOf reads who asks. The error says that nobody is named where the reverse proxy has to.
func (a *Actions) actorOf(r *http.Request) (actor, error) {
	who := actor{Name: bounded(strings.TrimSpace(r.PostForm.Get("as")), maxParameter), Why: bounded(strings.TrimSpace(r.PostForm.Get("why")), audit.MaxText)}
	header := a.UserHeader()
	if header == "" {
		return who, nil
	}
	names := r.Header.Values(header)
	if len(names) != 1 || strings.TrimSpace(names[0]) == "" {
		who.HasNoActor = true
		return who, refusal{http.StatusForbidden, "the request does not name one user in the header " + header + "; open the dashboard through the reverse proxy"}
	}
	who.User = bounded(strings.TrimSpace(names[0]), maxParameter)
	return who, nil
}

// person is the name for the log.
func (a *actor) person() string { return cmp.Or(a.User, a.Name) }

// check refuses a form that lacks the name or the reason.
func (a *actor) check() error {
	switch {
	case a.person() == "":
		return refusal{http.StatusBadRequest, "say who you are: the log names who acted"}
	case a.Why == "":
		return refusal{http.StatusBadRequest, "say why: the log names the reason"}
	}
	return nil
}

const (
	resubmit = "resubmit"
	purge    = "purge"

	maxChosen   = 100_000 // dead letters of one action, because their numbers are in memory
	maxPreviews = 8
	previewTime = 10 * time.Minute
	maxSample   = 5 // dead letters that a preview shows
	maxReasons  = 10
)

// A preview is what an action would change. It can be carried out once.
type preview struct {
	id, action string
	place      dlq.Place
	filter     string // for people
	survey     *dlq.Survey
	sample     []letterRow
	partial    bool // not all dead letters were read
	made       time.Time
}

// A previewView is a preview with the form that carries it out.
type previewView struct {
	page
	Error             string
	ID, Action        string
	Entity, Filter    string
	Count, Read       string
	More, Partial     bool
	Limit             string
	Reasons           []field
	Earliest, Latest  string
	Sample            []letterRow
	To, Within, Life  string
	Rate, Back        string
	IsSubscription    bool
	HasPreview, Empty bool
	actor
}

// preview reads which dead letters an action would change, and shows them.
func (d *Dashboard) preview(w http.ResponseWriter, r *http.Request) {
	action := parameter(r, "action")
	v := &previewView{page: d.page("deadletters", verbs[action].title), Entity: strings.TrimSpace(parameter(r, "entity"))}
	p, err := d.makePreview(r, action, v.Entity)
	if err != nil {
		v.Error = err.Error()
		show(w, statusOf(err), "preview.html", v)
		return
	}
	status := http.StatusOK
	if v.actor, err = d.source.Namespace.Actions.actorOf(r); err != nil {
		v.Error, status = err.Error(), statusOf(err)
	}
	v.fill(p)
	show(w, status, "preview.html", v)
}

// verbs are the actions, as words.
var verbs = map[string]struct{ title, done string }{
	resubmit: {"Resubmit dead letters", "resubmitted"},
	purge:    {"Purge dead letters", "purged"},
}

func (d *Dashboard) makePreview(r *http.Request, action, entity string) (*preview, error) {
	// Another site cannot read the answer, but it could replace the previews of others.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return nil, refusal{http.StatusForbidden, "only the dashboard itself may open this page"}
	}
	if d.source.Namespace == nil || d.source.Namespace.Actions == nil {
		return nil, refusal{http.StatusForbidden, "this dashboard only reads; dashboard.tokenFile in the configuration allows actions"}
	}
	place, err := dlq.ParsePlace(entity)
	switch {
	case err != nil:
		return nil, badRequest(err)
	case verbs[action].done == "":
		return nil, refusal{http.StatusBadRequest, "action is neither resubmit nor purge"}
	}
	reason, q := parameter(r, "reason"), query(r)
	filter := dlq.Filter{Reason: reason}
	for _, text := range r.URL.Query()["number"] {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil || number < 0 {
			return nil, refusal{http.StatusBadRequest, "number is not a sequence number"}
		}
		filter.Numbers = append(filter.Numbers, number)
	}
	if len(filter.Numbers) > maxLetters {
		return nil, badRequest(fmt.Errorf("at most %d dead letters can be chosen one by one", maxLetters))
	}
	ctx, leave, err := d.enter(r.Context(), readTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	now := time.Now()
	p := &preview{id: rand.Text(), action: action, place: place, filter: filterText(reason, q, len(filter.Numbers)), made: now}
	fits := func(l *dlq.Letter) bool { return filter.Fits(l, now) && contains(l, q) }
	p.survey, err = dlq.Examine(ctx, d.source.Namespace.Deadlines.Links, place, maxChosen, fits, func(l *dlq.Letter) error {
		if len(p.sample) < maxSample {
			p.sample = append(p.sample, newLetterRow(place, l, now))
		}
		return nil
	})
	switch {
	case ctx.Err() != nil && p.survey.Chosen > 0:
		p.partial = true
	case err != nil:
		return nil, dlq.Failure(place, err)
	case p.survey.Read == 0 && d.source.Namespace.Deadlines.IsTopic(ctx, place):
		return nil, badRequest(dlq.NoMessages(place))
	}
	d.jobs.keepPreview(p)
	return p, nil
}

func filterText(reason, q string, numbers int) string {
	var parts []string
	if numbers > 0 {
		parts = append(parts, fmt.Sprintf("%d chosen by hand", numbers))
	}
	if reason != "" {
		parts = append(parts, "reason "+reason)
	}
	if q != "" {
		parts = append(parts, "containing "+q)
	}
	return strings.Join(parts, ", ")
}

func (v *previewView) fill(p *preview) {
	s := p.survey
	v.ID, v.Action, v.Entity, v.Filter, v.HasPreview = p.id, p.action, p.place.String(), p.filter, true
	v.Title = verbs[p.action].title
	v.Count, v.Read, v.Empty = number(float64(s.Chosen)), number(float64(s.Read)), s.Chosen == 0
	v.More, v.Partial, v.Limit = s.More, p.partial, number(maxChosen)
	v.Earliest, v.Latest, v.Sample = stamp(s.Earliest), stamp(s.Latest), p.sample
	v.Rate, v.Back, v.IsSubscription = cmp.Or(v.Rate, "100"), lettersLink(p.place), p.place.Subscription != ""
	if !v.IsSubscription {
		v.To = cmp.Or(v.To, p.place.Entity)
	}
	reasons, others := s.TopReasons(maxReasons)
	for _, reason := range reasons {
		v.Reasons = append(v.Reasons, field{cmp.Or(cut(reason), "no reason"), number(float64(s.Reasons[reason]))})
	}
	if others > 0 {
		v.Reasons = append(v.Reasons, field{plural.Of(others, "other reason", "other reasons"), ""})
	}
}

// options are what the form of a preview says beside its id and the token.
type options struct {
	to      string
	isQueue bool // to is one, as far as is known
	copying dlq.Copying
	rate    float64
}

// readOptions reads the form of an action.
func readOptions(p *preview, form url.Values) (o options, err error) {
	if o.rate, err = strconv.ParseFloat(cmp.Or(form.Get("rate"), "100"), 64); err != nil || !(o.rate >= 0 && o.rate <= 1_000_000) {
		return o, refusal{http.StatusBadRequest, "the rate must be a number between 0 and 1000000; 0 is as fast as it goes"}
	}
	if p.action == purge {
		return o, nil
	}
	target, err := dlq.ParsePlace(strings.TrimSpace(bounded(form.Get("to"), maxParameter)))
	if err != nil || target.Subscription != "" {
		return o, refusal{http.StatusBadRequest, "say which queue or topic gets the copies"}
	}
	o.to = target.Entity
	for name, to := range map[string]*time.Duration{"within": &o.copying.Within, "ttl": &o.copying.TTL} {
		text := strings.TrimSpace(form.Get(name))
		if text == "" {
			continue
		}
		if *to, err = time.ParseDuration(text); err != nil || *to < time.Millisecond {
			return o, badRequest(fmt.Errorf("the deadline and the time to live are durations such as 90s, 5m or 1h30m, of 1 ms at least: %.50q is none", text))
		}
	}
	return o, nil
}
