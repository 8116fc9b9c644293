// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A jobList has the latest previews and jobs. One job runs at a time.
type jobList struct {
	starts chan *job     // has the job that is about to run
	guess  chan struct{} // holds a value while a token is compared

	mu       sync.Mutex
	previews []*preview
	jobs     []*job // the latest last
	running  bool   // one of the jobs
}

// keepPreview keeps p for a while, instead of the oldest if there are many.
func (l *jobList) keepPreview(p *preview) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.previews = slices.DeleteFunc(l.previews, func(old *preview) bool { return time.Since(old.made) > previewTime })
	if len(l.previews) == maxPreviews {
		l.previews = l.previews[1:]
	}
	l.previews = append(l.previews, p)
}

// previewOf returns the preview with an id, or nil.
func (l *jobList) previewOf(id string) *preview {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.previews, func(p *preview) bool { return p.id == id && time.Since(p.made) <= previewTime })
	if i < 0 {
		return nil
	}
	return l.previews[i]
}

// start has Run run a job, whose preview can be carried out once.
func (l *jobList) start(j *job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.previews, j.preview)
	switch {
	case i < 0:
		return errExpired // somebody was faster
	case j.preview.survey.Chosen == 0:
		return refusal{http.StatusBadRequest, "no dead letter was chosen"}
	}
	if l.running {
		return errRunning
	}
	l.running = true
	l.starts <- j // has room, because no other one runs
	l.previews = slices.Delete(l.previews, i, i+1)
	if l.jobs = append(l.jobs, j); len(l.jobs) > maxJobs {
		l.jobs = l.jobs[1:]
	}
	return nil
}

// end lets the next job run.
func (l *jobList) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
}

// find returns the job with an id, or nil.
func (l *jobList) find(id string) *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.jobs, func(j *job) bool { return j.id == id })
	if i < 0 {
		return nil
	}
	return l.jobs[i]
}

// rows are the latest actions, the last first.
func (l *jobList) rows() (rows []*jobRow) {
	l.mu.Lock()
	jobs := slices.Clone(l.jobs)
	l.mu.Unlock()
	for _, j := range slices.Backward(jobs) {
		rows = append(rows, j.row())
	}
	return rows
}

// checkToken compares the token of a form. Hashes have one length, so the time tells nothing of it.
func (l *jobList) checkToken(r *http.Request, token string) error {
	select {
	case l.guess <- struct{}{}:
		defer func() { <-l.guess }()
	case <-r.Context().Done():
		return errBusy
	}
	given, want := sha256.Sum256([]byte(r.PostForm.Get("token"))), sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
		return nil
	}
	select {
	case <-time.After(guessTime):
	case <-r.Context().Done():
	}
	return errToken
}

// A jobView is one action, while it runs and afterwards.
type jobView struct {
	page
	Job      *jobRow
	ID, Back string
}

// A jobRow is an action on a page.
type jobRow struct {
	Title, Entity, To, Filter, Link string
	Began                           time.Time
	Took                            string
	Chosen, Done                    int
	Verb, State, Person, Why        string
	Running, Bad                    bool
	Results                         []string
	Error                           string
}

func jobLink(j *job) string { return Path + "action?" + values("id", j.id) }

func (j *job) row() *jobRow {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.preview
	r := &jobRow{
		Title: verbs[p.action].title, Verb: verbs[p.action].done, Entity: p.place.String(), To: j.options.to, Filter: p.filter, Link: jobLink(j),
		Person: j.audit.Person, Why: j.audit.Why, Began: j.began, Chosen: p.survey.Chosen, Done: min(j.done, p.survey.Chosen), Results: j.results,
	}
	end := j.ended
	switch {
	case end.IsZero():
		r.State, r.Running, end = "running", true, time.Now()
	case j.err != nil:
		r.State, r.Bad, r.Error = "failed", true, j.err.Error()
		if j.stopped {
			r.State = "stopped"
		}
	default:
		r.State = "done"
	}
	r.Took = span(end.Sub(j.began))
	return r
}

func (a *actionPages) jobView(j *job) *jobView {
	v := &jobView{page: a.page("deadletters", verbs[j.preview.action].title), Job: j.row(), ID: j.id, Back: lettersLink(j.preview.place)}
	v.Events = Path + "events?" + values("page", "action", "id", j.id)
	return v
}

// action shows one action.
func (a *actionPages) action(w http.ResponseWriter, r *http.Request) {
	if j := a.jobs.find(parameter(r, "id")); j != nil {
		show(w, "action.html", a.jobView(j), nil)
		return
	}
	a.refuse(w, errNoJob)
}

// stop ends an action.
func (a *actionPages) stop(w http.ResponseWriter, r *http.Request) {
	j := a.jobs.find(r.PostForm.Get("id"))
	if j == nil {
		a.refuse(w, errNoJob)
		return
	}
	if err := a.jobs.checkToken(r, a.Actions.Token()); err != nil {
		show(w, "action.html", a.jobView(j), err)
		return
	}
	j.stop()
	http.Redirect(w, r, jobLink(j), http.StatusSeeOther)
}
