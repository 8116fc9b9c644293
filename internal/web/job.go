// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"time"
)

// A jobView is one action, while it runs and afterwards.
type jobView struct {
	page
	Job      *jobRow
	ID, Back string
	Error    string
}

// A jobRow is an action on a page.
type jobRow struct {
	Title, Entity, To, Filter, Link string
	Began, Took                     string
	Chosen, Done                    int
	Count, Total                    string
	Verb, State                     string
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
		Began: stamp(j.began), Chosen: p.survey.Chosen, Done: min(j.done, p.survey.Chosen), Results: j.results,
		Count: number(float64(j.done)), Total: number(float64(p.survey.Chosen)),
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

func (d *Dashboard) jobView(id string) (*jobView, bool) {
	v := &jobView{page: d.page("deadletters", "Action"), ID: id, Back: Path + "deadletters"}
	j := d.jobs.find(id)
	if j == nil {
		return v, false
	}
	v.Job, v.Back = j.row(), lettersLink(j.preview.place)
	v.Title = v.Job.Title
	return v, true
}

// action shows one action.
func (d *Dashboard) action(w http.ResponseWriter, r *http.Request) {
	v, ok := d.jobView(parameter(r, "id"))
	if !ok {
		v.Error = "This action is not known: only the latest are, and only while the process runs. Its log has all of them."
		show(w, http.StatusNotFound, "action.html", v)
		return
	}
	v.Events = Path + "events?" + values("page", "action", "id", v.ID)
	show(w, http.StatusOK, "action.html", v)
}

// stop ends an action.
func (d *Dashboard) stop(w http.ResponseWriter, r *http.Request) {
	if !d.mayAct(w, r) {
		return
	}
	j := d.jobs.find(r.PostForm.Get("id"))
	if j == nil {
		http.Error(w, "this action is not known", http.StatusNotFound)
		return
	}
	if err := d.jobs.checkToken(r, d.source.Namespace.Actions.Token); err != nil {
		v, _ := d.jobView(j.id)
		v.Error = err.Error()
		show(w, statusOf(err), "action.html", v)
		return
	}
	j.stop()
	http.Redirect(w, r, jobLink(j), http.StatusSeeOther)
}
