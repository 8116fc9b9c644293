// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	viewTime = time.Second // bound of a report, which nobody waits for
	// ReportEvery is how often a process reports; one that has not for three times as long is gone.
	ReportEvery = 5 * time.Second
	presentAge  = 3 * ReportEvery
	// A process that is gone without a word is shown for so long, and as many of them as mostGone.
	goneLife = 24 * time.Hour
	mostGone = 100

	todayLife = 48 * time.Hour
	everLife  = 366 * 24 * time.Hour // after the last verdict
	// maxNames bounds the entities and verdicts that are counted apart, and maxOutstanding the
	// entities of one report.
	maxNames       = 4000
	maxOutstanding = 100
	otherEntities  = "other"
)

// A Process is what a process of the fleet says of itself.
type Process struct {
	ID          string           `json:"id"` // of this run of it
	Host        string           `json:"host"`
	Admin       string           `json:"admin"` // address of its admin port
	Role        string           `json:"role"`
	Monitor     bool             `json:"monitor,omitempty"` // it has a monitor
	Version     string           `json:"version"`
	Started     time.Time        `json:"started"`
	NotReady    string           `json:"notReady,omitempty"`    // why, in words; "" = it is ready
	Outstanding map[string]int64 `json:"outstanding,omitempty"` // by entity: deadlines that have come and have no verdict yet

	// Of a process that was read:
	Seen time.Time `json:"seen,omitzero"`  // when it reported last, by our clock
	Gone bool      `json:"gone,omitempty"` // it has not reported lately, and did not say that it ends
	Own  bool      `json:"-"`              // it is the one that has read it
}

// Place distinguishes processes of one host, by the ports of their admin ports.
func (p *Process) Place() string {
	return p.Host + p.Admin[max(0, strings.LastIndexByte(p.Admin, ':')):]
}

// TotalOutstanding is what is outstanding of all entities.
func (p *Process) TotalOutstanding() (n int64) {
	for _, of := range p.Outstanding {
		n += of
	}
	return n
}

// A Fleet is what the processes say together.
type Fleet struct {
	Processes   []Process        `json:"processes"`   // by host and role; those that are gone come last
	Outstanding map[string]int64 `json:"outstanding"` // of those that are not gone
	// Deadlines by entity and verdict, since 00:00 UTC and since Since. Both outlive the processes.
	Today map[string]map[string]uint64 `json:"today"`
	Ever  map[string]map[string]uint64 `json:"ever"`
	Since time.Time                    `json:"since,omitzero"` // zero = nothing was counted
}

// Monitors counts those that are there.
func (f *Fleet) Monitors() (n int) {
	for i := range f.Processes {
		if f.Processes[i].Monitor && !f.Processes[i].Gone {
			n++
		}
	}
	return n
}

// View is what the processes of the fleet report.
type View struct {
	c  *circuit
	id string // of this process
}

// View is that of the fleet.
func (s *Store) View() *View {
	return &View{s.circuit("view", viewTime, s.key("{view}", "trial"), "time", "hset", "hgetall", "hdel", "hlen", "hexists", "hincrby",
		"lrange", "pexpire", "eval", "evalsha"), rand.Text()}
}

// ID is that of this process among the others.
func (v *View) ID() string { return v.id }

// keys are those of the processes that are there and of those that are gone, and of the counts of a
// day and of all days.
func (v *View) keys(now time.Time) (processes, gone, today, ever string) {
	key := func(parts ...string) string { return v.c.s.key(append([]string{"{view}"}, parts...)...) }
	return key("processes"), key("gone"), key("verdicts", now.UTC().Format(time.DateOnly)), key("verdicts")
}

// Report says how a process is, and which verdicts it has reached since the last report that
// succeeded, by entity and verdict. It is due every ReportEvery.
func (v *View) Report(ctx context.Context, p Process, verdicts map[string]map[string]uint64) error {
	p.ID, p.Outstanding = v.id, clip(p.Outstanding)
	body, err := json.Marshal(&p)
	if err != nil {
		return err
	}
	counts := map[string]int64{}
	for entity, byVerdict := range verdicts {
		for verdict, n := range byVerdict {
			counts[entity+"\n"+verdict] = int64(n)
		}
	}
	processes, _, today, ever := v.keys(time.Now())
	return v.c.do(ctx, func(ctx context.Context) error {
		if err := put(ctx, v.c.s.client, processes, v.id, string(body), goneLife); err != nil {
			return err
		}
		return countUp(ctx, v.c.s.client, maxNames, counts, tally{today, todayLife}, tally{ever, everLife})
	})
}

// clip leaves the entities with the highest numbers, and adds up the others.
func clip(outstanding map[string]int64) map[string]int64 {
	if len(outstanding) <= maxOutstanding {
		return outstanding
	}
	names := make([]string, 0, len(outstanding))
	for name := range outstanding {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(outstanding[b], outstanding[a]) })
	clipped := map[string]int64{}
	for i, name := range names {
		if i >= maxOutstanding {
			clipped[otherEntities] += outstanding[name]
			continue
		}
		clipped[name] += outstanding[name]
	}
	return clipped
}

// Leave says that this process ends as it should: it is not gone.
func (v *View) Leave(ctx context.Context) error {
	processes, _, _, _ := v.keys(time.Now())
	return v.c.do(ctx, func(ctx context.Context) error { return remove(ctx, v.c.s.client, processes, v.id) })
}

// Read returns what was reported.
func (v *View) Read(ctx context.Context) (Fleet, error) {
	f := Fleet{Outstanding: map[string]int64{}}
	now := time.Now()
	processes, gone, today, ever := v.keys(now)
	err := v.c.do(ctx, func(ctx context.Context) error {
		reports, err := present(ctx, v.c.s.client, processes, gone, presentAge, mostGone, goneLife)
		if err != nil {
			return err
		}
		f.take(reports, now, v.id)
		counts, _, err := counted(ctx, v.c.s.client, today)
		if err != nil {
			return err
		}
		f.Today = byEntity(counts)
		counts, f.Since, err = counted(ctx, v.c.s.client, ever)
		f.Ever = byEntity(counts)
		return err
	})
	return f, err
}

// take reads reports, those of processes that are gone after the others. own is our ID.
func (f *Fleet) take(reports []stamped, now time.Time, own string) {
	byID := map[string]Process{}
	for _, r := range reports {
		var p Process
		if json.Unmarshal([]byte(r.value), &p) != nil || p.ID == "" {
			continue // somebody else wrote it
		}
		p.Seen, p.Gone, p.Own = now.Add(-r.age).UTC(), r.age > presentAge, p.ID == own
		if r.age <= goneLife && p.Seen.After(byID[p.ID].Seen) { // it may have come back
			byID[p.ID] = p
		}
	}
	for _, p := range byID {
		if p.Gone && isReplaced(p, byID) {
			continue
		}
		f.Processes = append(f.Processes, p)
		if !p.Gone {
			for name, n := range p.Outstanding {
				f.Outstanding[name] += n
			}
		}
	}
	slices.SortFunc(f.Processes, func(a, b Process) int {
		switch {
		case a.Gone != b.Gone && a.Gone:
			return 1
		case a.Gone != b.Gone:
			return -1
		}
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Admin, b.Admin), a.Started.Compare(b.Started))
	})
}

// isReplaced reports whether a process has been started in the place of one that is gone: on its
// host, with its role and its admin port. Clocks may differ by as long as a process is not missed.
func isReplaced(gone Process, all map[string]Process) bool {
	for _, p := range all {
		samePlace := p.Host == gone.Host && p.Admin == gone.Admin && p.Role == gone.Role
		if samePlace && p.ID != gone.ID && p.Started.After(gone.Seen.Add(-presentAge)) {
			return true
		}
	}
	return false
}

// byEntity reads the names of counts.
func byEntity(counts map[string]int64) map[string]map[string]uint64 {
	verdicts := map[string]map[string]uint64{}
	for name, n := range counts {
		entity, verdict, _ := strings.Cut(name, "\n")
		if verdicts[entity] == nil {
			verdicts[entity] = map[string]uint64{}
		}
		verdicts[entity][verdict] += uint64(max(0, n))
	}
	return verdicts
}
