// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"golang.org/x/sync/errgroup"

	"overdue/internal/servicebus/link"
)

const (
	// timeLimit bounds all trials together, and removing their queues.
	timeLimit = 5 * time.Minute
	// removal is the part of it that is kept for removing queues.
	removal = 30 * time.Second
	// atOnce is how many trials run side by side. Most of their time is waiting.
	atOnce = 8
)

// Config says where to try. All fields but Done are required.
type Config struct {
	Client *azservicebus.Client
	Links  *link.Namespace
	Admin  *admin.Client
	Done   func(*Result) // called with each result as it comes, never twice at once; nil: nobody wants to know
}

// A Result is what became of one assumption.
type Result struct {
	ID         string  `json:"id"`
	Assumption string  `json:"assumption"`
	Verdict    Verdict `json:"verdict"`
	Detail     string  `json:"detail,omitempty"`
	Certainty  Mark    `json:"certainty"`
	Guarantees string  `json:"guarantees,omitempty"`
	Program    string  `json:"program"` // what it does if the assumption is wrong

	operations int
}

// IDs are those of the assumptions that can be tried.
func IDs() (ids []string) {
	for i := range Assumptions {
		if Assumptions[i].Tried() {
			ids = append(ids, Assumptions[i].ID)
		}
	}
	return ids
}

// chosen are the assumptions with these ids, or all.
func chosen(only []string) (all []*Assumption) {
	for i := range Assumptions {
		if len(only) == 0 || slices.Contains(only, Assumptions[i].ID) {
			all = append(all, &Assumptions[i])
		}
	}
	return all
}

// A Report is what became of all of them. It has no names of the namespace, so it can be attached to
// an issue.
type Report struct {
	Version    string    `json:"version"`
	Time       time.Time `json:"time"`
	Seconds    float64   `json:"seconds"`
	Tier       string    `json:"tier,omitempty"`
	Operations int       `json:"operations"`
	Results    []*Result `json:"results"`
}

// Count counts the results with a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, x := range r.Results {
		if x.Verdict == v {
			n++
		}
	}
	return n
}

// Try tries assumptions, those with these ids or all. The error says that queues could not be
// removed, or that ctx has ended.
func Try(ctx context.Context, cfg Config, only ...string) (*Report, error) {
	report := &Report{Time: time.Now().UTC()}
	began := time.Now()
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	trying, cancel := context.WithTimeout(ctx, timeLimit-removal)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var errs []error
	for i, a := range chosen(only) {
		r := &Result{ID: a.ID, Assumption: a.What, Certainty: a.Mark, Guarantees: a.Guarantees, Program: a.Otherwise}
		report.Results = append(report.Results, r)
		prefix := fmt.Sprintf("overdue-verify-%s-%d", hex.EncodeToString(id[:]), i)
		g.Go(func() error {
			err := r.settle(trying, &cfg, a, prefix)
			mu.Lock()
			defer mu.Unlock()
			report.Operations += r.operations
			errs = append(errs, err)
			if cfg.Done != nil {
				cfg.Done(r)
			}
			return nil
		})
	}
	_ = g.Wait() // no trial returns an error
	report.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	return report, errors.Join(append(errs, ctx.Err())...)
}

// settle tries one assumption and removes its queues.
func (r *Result) settle(ctx context.Context, cfg *Config, a *Assumption, prefix string) error {
	if !a.Tried() {
		r.Verdict, r.Detail = Unknown, "not tried: "+a.untried
		return nil
	}
	t := &trial{ctx: ctx, cfg: cfg, prefix: prefix}
	found := answer{Unknown, "there was no time for it"}
	if ctx.Err() == nil {
		found = t.run(a.try)
	}
	r.Verdict, r.Detail, r.operations = found.verdict, found.detail, t.operations
	return t.remove()
}

// Count is how many results there are for these ids, or for all.
func Count(only []string) int { return len(chosen(only)) }
