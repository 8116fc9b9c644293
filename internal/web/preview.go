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
	"unicode/utf8"

	"overdue/internal/escape"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/link"
	"overdue/monitor/mute"
)

// Actions are what a dashboard can change. All fields but Mute are required.
type Actions struct {
	Token      func() string // that each action has to give
	UserHeader func() string // in which the reverse proxy names the user; "" = whoever acts types a name
	Namespace  string        // by its host; journals go by it
	Folder     func() (string, error)
	// Sender sends to an entity as an app does, so that copies have companions. done ends it.
	Sender func(ctx context.Context, to string) (out *link.Sender, done func(), err error)
	Audit  func(audit.Line)
	// Mute is that of [mute.Record.Set]. It needs Source.Mutes. nil: there are no alerts.
	Mute func(ctx context.Context, m mute.Mute, span time.Duration) (mute.Mute, error)
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
	body       *string // of the only dead letter, if a form can hold it
	partial    bool    // not all dead letters were read
	made       time.Time
}

// A previewView is a preview with the form that carries it out.
type previewView struct {
	page
	ID, Action     string
	Entity, Filter string
	*dlq.Survey
	Partial        bool
	Limit          int
	Reasons        []field
	Sample         []letterRow
	Form           resubmitForm
	IsOne, HasBody bool // there is one dead letter; its body can be edited
	Rate, Back     string
	IsSubscription bool
	HasPreview     bool
	actor
}

// preview reads which dead letters an action would change, and shows them.
func (a *actionPages) preview(w http.ResponseWriter, r *http.Request) {
	action := parameter(r, "action")
	v := &previewView{page: a.page("deadletters", verbs[action].title), Entity: strings.TrimSpace(parameter(r, "entity"))}
	p, err := a.makePreview(r, action, v.Entity)
	if err == nil {
		v.actor, err = a.Actions.actorOf(r)
		v.fill(p)
	}
	show(w, "preview.html", v, err)
}

// verbs are the actions, as words.
var verbs = map[string]struct{ title, done string }{
	resubmit: {"Resubmit dead letters", "resubmitted"},
	purge:    {"Purge dead letters", "purged"},
}

func (a *actionPages) makePreview(r *http.Request, action, entity string) (*preview, error) {
	// Another site cannot read the answer, but it could replace the previews of others.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return nil, refusal{http.StatusForbidden, "only the dashboard itself may open this page"}
	}
	place, err := dlq.ParsePlace(entity)
	switch {
	case err != nil:
		return nil, badRequest(err)
	case verbs[action].done == "":
		return nil, refusal{http.StatusBadRequest, "action is neither resubmit nor purge"}
	}
	var numbers []int64
	for _, text := range r.URL.Query()["number"] {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil || number < 0 {
			return nil, refusal{http.StatusBadRequest, "number is not a sequence number"}
		}
		numbers = append(numbers, number)
	}
	if len(numbers) > maxLetters {
		return nil, badRequest(fmt.Errorf("at most %d dead letters can be chosen one by one", maxLetters))
	}
	ctx, leave, err := a.enter(r.Context(), readTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	now := time.Now()
	p := &preview{id: rand.Text(), action: action, place: place, made: now}
	if _, p.filter = filterOf(r); len(numbers) > 0 {
		p.filter = strings.TrimSuffix(fmt.Sprintf("%d chosen by hand, %s", len(numbers), p.filter), ", ")
	}
	p.survey, p.partial, err = a.survey(ctx, r, place, numbers, func(l *dlq.Letter) {
		if len(p.sample) == 0 {
			p.body = editable(place, l)
		}
		if len(p.sample) < maxSample {
			p.sample = append(p.sample, newLetterRow(place, l, now))
		}
	})
	if err != nil {
		return nil, err
	}
	if p.survey.Chosen != 1 {
		p.body = nil
	}
	a.jobs.keepPreview(p)
	return p, nil
}

// editable is the body of a dead letter as text that a form gives back as it was; nil = it has none.
func editable(place dlq.Place, l *dlq.Letter) *string {
	text := string(l.BodyBytes())
	with := dlq.Copying{Body: &text}
	if len(text) > maxBody || !utf8.ValidString(text) || escape.Lines(text) != text {
		return nil
	}
	if _, err := with.Encode(place, l); err != nil {
		return nil
	}
	return &text
}

func (v *previewView) fill(p *preview) {
	s := p.survey
	v.ID, v.Action, v.Entity, v.Filter, v.HasPreview = p.id, p.action, p.place.String(), p.filter, true
	v.Title = verbs[p.action].title
	v.Survey, v.Partial, v.Limit, v.Sample = s, p.partial, maxChosen, p.sample
	v.Rate, v.Back, v.IsSubscription = cmp.Or(v.Rate, "100"), lettersLink(p.place), p.place.Subscription != ""
	if !v.IsSubscription {
		v.Form.To = cmp.Or(v.Form.To, p.place.Entity)
	}
	if v.IsOne, v.HasBody = s.Chosen == 1, p.body != nil; v.HasBody && !v.Form.posted {
		v.Form.Body = *p.body
	}
	groups, others := s.Groups(maxReasons)
	for _, g := range groups {
		v.Reasons = append(v.Reasons, field{cmp.Or(cut(g.Reason), "no reason"), number(g.Count)})
	}
	if others > 0 {
		v.Reasons = append(v.Reasons, field{"other reasons", number(others)})
	}
}

// A resubmitForm is how copies are to be, as it was typed.
type resubmitForm struct {
	To, Within, Life, Delay, Edits, Body string
	posted                               bool
}

func readResubmitForm(form url.Values) resubmitForm {
	return resubmitForm{
		To:     strings.TrimSpace(bounded(form.Get("to"), maxParameter)),
		Within: strings.TrimSpace(form.Get("within")),
		Life:   strings.TrimSpace(form.Get("ttl")),
		Delay:  strings.TrimSpace(form.Get("delay")),
		Edits:  form.Get("edits"),
		Body:   strings.ReplaceAll(form.Get("body"), "\r\n", "\n"), // a form ends lines so
		posted: true,
	}
}

// IsEdited reports whether the part of the form about edits has to be seen.
func (f *resubmitForm) IsEdited() bool { return f.posted && f.Edits != "" }

// copying is what the form says. body is that of the dead letter, if the form has it.
func (f *resubmitForm) copying(body *string) (c dlq.Copying, err error) {
	if c.NoDeadline = f.Within == "none"; !c.NoDeadline {
		c.Within, err = readSpan("the deadline of each copy", f.Within)
	}
	if err == nil {
		c.TTL, err = readSpan("the time to live", f.Life)
	}
	if err == nil {
		c.Delay, err = readSpan("the delay", f.Delay)
	}
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(f.Edits) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		to := &value
		if !ok {
			if name, ok = strings.CutPrefix(line, "-"); !ok {
				return c, badRequest(fmt.Errorf("an edit is a line such as tenant=blue, or -tenant to leave the property out: %.50q is none", line))
			}
			to = nil
		}
		if err := c.Edits.Add(name, to); err != nil {
			return c, badRequest(err)
		}
	}
	if body != nil && *body != f.Body {
		c.Body = &f.Body
	}
	if err := c.Check("the deadline of each copy", "the time to live", "the delay"); err != nil {
		return c, badRequest(err)
	}
	return c, nil
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
	typed := readResubmitForm(form)
	target, err := dlq.ParsePlace(typed.To)
	if err != nil || target.Subscription != "" {
		return o, refusal{http.StatusBadRequest, "say which queue or topic gets the copies"}
	}
	o.to = target.Entity
	o.copying, err = typed.copying(p.body)
	return o, err
}
