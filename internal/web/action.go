// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
)

const (
	// guessTime is how long a wrong token takes. Tokens are compared one at a time.
	guessTime = time.Second
	maxJobs   = 20 // actions that are remembered
)

var (
	errOnlyReads = refusal{http.StatusForbidden, "this dashboard only reads; dashboard.tokenFile in the configuration allows actions"}

	errNoJob   = refusal{http.StatusNotFound, "this action is not known: only the latest are, and only while the process runs; its log has all of them"}
	errToken   = refusal{http.StatusForbidden, "the token is wrong: dashboard.tokenFile in the configuration says where it is"}
	errRunning = refusal{http.StatusConflict, "another action is running; one runs at a time"}
	errExpired = refusal{http.StatusGone, "this preview is too old, or was carried out already; look at the dead letters again"}
)

// actionPages change dead letters, after a preview, and mutes.
type actionPages struct{ *messagePages }

func (a *actionPages) register(mux *http.ServeMux) {
	if a.Actions == nil {
		for _, name := range []string{"preview", "act", "stop", "mute"} {
			mux.HandleFunc(Path+name, func(w http.ResponseWriter, _ *http.Request) { a.refuse(w, errOnlyReads) })
		}
		return
	}
	mux.HandleFunc("GET "+Path+"preview", a.preview)
	mux.HandleFunc("GET "+Path+"action", a.action)
	mux.HandleFunc("POST "+Path+"act", a.form(a.act))
	mux.HandleFunc("POST "+Path+"stop", a.form(a.stop))
	if a.Actions.Mute != nil {
		mux.HandleFunc("GET "+Path+"mute", a.mute)
		mux.HandleFunc("POST "+Path+"mute", a.form(a.mute))
	}
}

// A job is an action that runs, or has ended.
type job struct {
	id      string
	preview *preview
	options options
	audit   audit.Line // as it started
	began   time.Time

	mu      sync.Mutex
	done    int
	ended   time.Time // zero = it runs
	results []string
	err     error
	cancel  context.CancelFunc // nil until it runs
	stopped bool               // somebody wants it to end
}

func (j *job) add(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done += n
}

// stop ends a job that runs, or one that is about to.
func (j *job) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped = true; j.cancel != nil {
		j.cancel()
	}
}

// act carries out a preview.
func (a *actionPages) act(w http.ResponseWriter, r *http.Request) {
	p := a.jobs.previewOf(r.PostForm.Get("id"))
	if p == nil {
		show(w, "preview.html", &previewView{page: a.page("deadletters", "Dead letters")}, errExpired)
		return
	}
	j, err := a.begin(r, p)
	if err == nil {
		http.Redirect(w, r, jobLink(j), http.StatusSeeOther)
		return
	}
	form := r.PostForm
	v := &previewView{page: a.page("deadletters", ""), Form: readResubmitForm(form), Rate: form.Get("rate")}
	v.actor, _ = a.Actions.actorOf(r) // its error is that of begin
	v.fill(p)
	show(w, "preview.html", v, err)
}

// form reads the form that a page takes.
func (a *actionPages) form(take http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			a.refuse(w, badRequest(err))
			return
		}
		take(w, r)
	}
}

// authorize takes over into line who asks for an action, and why, and checks that a form says so and
// has the token. The log has wrong tokens.
func (a *actionPages) authorize(r *http.Request, line *audit.Line) error {
	who, nobody := a.Actions.actorOf(r)
	line.Person, line.Why, line.Caller = who.person(), who.Why, r.RemoteAddr
	if err := a.jobs.checkToken(r, a.Actions.Token()); err != nil {
		if errors.Is(err, errToken) {
			refused := *line
			refused.Event, refused.Err = audit.Refused, err
			a.Actions.Audit(refused)
		}
		return err
	}
	return cmp.Or(nobody, who.check())
}

// begin checks the token and the form, and starts the job.
func (a *actionPages) begin(r *http.Request, p *preview) (*job, error) {
	line := audit.Line{
		Event:  audit.Started,
		Action: p.action,
		Entity: p.place.String(),
		Filter: p.filter,
		Chosen: p.survey.Chosen,
	}
	if err := a.authorize(r, &line); err != nil {
		return nil, err
	}
	o, err := readOptions(p, r.PostForm)
	if err != nil {
		return nil, err
	}
	if p.action == resubmit {
		if err := a.readTarget(r.Context(), &o); err != nil {
			return nil, err
		}
	}
	line.To, line.Edits = o.to, o.copying.EditNames()
	j := &job{id: p.id[:12], preview: p, options: o, audit: line, began: time.Now()}
	return j, a.jobs.start(j)
}

// readTarget reads the settings of the target: where it detects duplicates, copies need other ids.
func (n *Namespace) readTarget(ctx context.Context, o *options) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	info, err := n.Deadlines.Describe(ctx, o.to)
	switch {
	case errors.Is(err, entities.ErrNotFound):
		return badRequest(fmt.Errorf("there is no queue or topic %q; create it, or correct the name", o.to))
	case err != nil:
		return fmt.Errorf("it is not known whether %s detects duplicates, and would drop copies that keep their ids; use `overdue dlq resubmit --new-ids`: %w", o.to, err)
	}
	o.copying.NewIDs, o.isQueue = info.RequiresDuplicateDetection, info.Kind == entities.Queue
	return nil
}

// runJob runs a job to its end. ctx ends with the process.
func (a *actionPages) runJob(ctx context.Context, j *job) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j.mu.Lock()
	if j.cancel = cancel; j.stopped {
		cancel()
	}
	j.mu.Unlock()
	line := j.audit
	a.Actions.Audit(line)
	var results []string
	var err error
	if line.Action == purge {
		results, err = a.purge(ctx, j)
	} else {
		results, err = a.resubmit(ctx, j)
	}
	j.mu.Lock()
	if err != nil && ctx.Err() != nil {
		err = errors.New("stopped before the end")
		if line.Action == resubmit {
			results = append(results, "A resubmission of the same dead letters to the same target continues where this one stopped.")
		}
	}
	j.results, j.err, j.ended = results, err, time.Now()
	line.Event, line.Done, line.Err = audit.Ended, j.done, err
	j.mu.Unlock()
	a.Actions.Audit(line)
	a.jobs.end()
}

// hold is how long a dead letter of a place may be kept under lock.
func (n *Namespace) hold(ctx context.Context, place dlq.Place) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	info, err := n.Deadlines.Describe(ctx, place.Entity)
	if err != nil {
		return dlq.Hold(0)
	}
	return dlq.Hold(info.LockDurationOf(place.Subscription))
}

func (n *Namespace) purge(ctx context.Context, j *job) (results []string, err error) {
	p := j.preview
	locked, gone, err := dlq.Purge(ctx, n.Deadlines.Links, p.place, p.survey.Numbers, n.hold(ctx, p.place), j.options.rate, j.add)
	return describeUntouched(locked, gone, nil), dlq.Failure(p.place, err)
}

func (n *Namespace) resubmit(ctx context.Context, j *job) (results []string, err error) {
	a, p := n.Actions, j.preview
	folder, err := a.Folder()
	if err != nil {
		return nil, err
	}
	journal, err := dlq.OpenJournal(dlq.JournalFile(folder, a.Namespace, p.place, j.options.to))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	out, done, err := a.Sender(ctx, j.options.to)
	if err != nil {
		return nil, failure.Sending(j.options.to, err)
	}
	defer done()
	r := dlq.Resubmission{
		Links:   n.Deadlines.Links,
		Place:   p.place,
		To:      j.options.to,
		IsQueue: j.options.isQueue,
		Out:     out,
		Copying: j.options.copying,
		Journal: journal,
		Rate:    j.options.rate,
		Hold:    n.hold(ctx, p.place),
		Copied:  j.add,
	}
	outcome, err := r.Run(ctx, p.survey.Numbers)
	if outcome.Finished > 0 {
		results = append(results, number(outcome.Finished)+" more had been sent by an earlier run, and have been taken off now.")
	}
	results = append(results, describeUntouched(outcome.Locked, outcome.Gone, outcome.Unsure)...)
	return results, dlq.Failure(p.place, err)
}

// describeUntouched says which dead letters an action has left, and why.
func describeUntouched(locked, gone, unsure []int64) (results []string) {
	if len(locked) > 0 {
		results = append(results, number(len(locked))+" are locked by another client and were left. Try again when their locks have lapsed.")
	}
	if len(gone) > 0 {
		results = append(results, number(len(gone))+" are not there any more.")
	}
	if len(unsure) > 0 {
		results = append(results, number(len(unsure))+" may have been sent by a run that was stopped, and received since. They were left. `overdue dlq resubmit --resend` sends them.")
	}
	return results
}
