// SPDX-License-Identifier: Apache-2.0

// Package verify tries on a namespace what Overdue assumes of Service Bus. Nobody but the service
// can confirm an assumption, so each has a trial: a few operations on queues that exist only for
// it.
//
// The table of assumptions is the one place that states them. `overdue doctor verify` tries them, and
// docs/internals/servicebus.md shows them.
package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"golang.org/x/sync/errgroup"

	"overdue/internal/broker/quirk"
	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/internal/terminal"
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

	public     string // Detail without words of the service or the network
	quirk      quirk.Set
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

// A Report is what became of all of them. Its details may quote the service, with its names; those of
// WriteMarkdown do not.
type Report struct {
	Version    string    `json:"version"`
	SDK        string    `json:"sdk"`
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
	run := strings.ToLower(rand.Text()[:8])
	trying, cancel := context.WithTimeout(ctx, timeLimit-removal)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var errs []error
	for i, a := range chosen(only) {
		r := &Result{ID: a.ID, Assumption: a.What, Certainty: a.Mark, Guarantees: a.Guarantees, Program: a.Otherwise, quirk: a.Quirk}
		report.Results = append(report.Results, r)
		prefix := fmt.Sprintf("overdue-verify-%s-%d", run, i)
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
		r.set(unclear("not tried: " + a.untried))
		return nil
	}
	t := &trial{ctx: ctx, cfg: cfg, prefix: prefix}
	found := unclear("there was no time for it")
	if ctx.Err() == nil {
		found = t.run(a.try)
	}
	r.set(found)
	r.operations = t.operations
	return t.remove()
}

// set notes what was found.
func (r *Result) set(found answer) {
	r.Verdict, r.Detail, r.public = found.verdict, found.detail, found.detail
	if found.err == nil {
		return
	}
	join := func(words string) string { return strings.TrimPrefix(found.detail+": "+words, ": ") }
	r.Detail, r.public = join(failure.Reason(found.err)), join(class(found.err))
}

// Count is how many results there are for these ids, or for all.
func Count(only []string) int { return len(chosen(only)) }

// Announce says what trials cost, before they begin.
func Announce(w io.Writer, host string, width int, only ...string) error {
	tried, operations := 0, 0
	for _, a := range chosen(only) {
		if a.Tried() {
			tried++
			operations += a.operations
		}
	}
	text := fmt.Sprintf("This tries %s about Service Bus in %s, on queues of its own (overdue-verify-…), which it removes. "+
		"It takes about %s and at most %s. It needs the Manage right, and touches nothing else.",
		plural.Of(tried, "assumption", "assumptions"), host, plural.Of(operations, "operation", "operations"), "5 minutes")
	_, err := fmt.Fprintln(w, terminal.Wrap(text, width, 0))
	return err
}

// colors are the SGR parameters of verdicts on a terminal.
var colors = map[Verdict]string{AsAssumed: "32", Unknown: "36", Otherwise: "1;31"}

// verdictIndent is the width of what stands before an assumption, and detailIndent that of what
// stands before a remark on it.
const (
	verdictIndent = len("  could not tell  ")
	detailIndent  = verdictIndent + len("program: ")
)

// WriteText writes a paragraph for each result: what is otherwise first, what is as assumed last.
// It escapes what comes from outside. w must not escape, because it gets colors.
func (r *Report) WriteText(w io.Writer, color bool, width int) error {
	var b strings.Builder
	for _, v := range verdicts {
		for _, x := range r.Results {
			if x.Verdict == v {
				x.write(&b, color, width)
			}
		}
	}
	tier := ""
	if r.Tier != "" {
		tier = ", tier " + r.Tier
	}
	fmt.Fprintf(&b, "\n%d as assumed, %d otherwise, %d unknown; %s in %.1f s%s\n",
		r.Count(AsAssumed), r.Count(Otherwise), r.Count(Unknown), plural.Of(r.Operations, "operation", "operations"), r.Seconds, escape.Text(tier))
	if settings := r.Settings(); settings != "" {
		fmt.Fprintf(&b, "\nAn embedded broker behaves like this namespace with:\n%s", settings)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (x *Result) write(b *strings.Builder, color bool, width int) {
	verdict := terminal.Paint(color, colors[x.Verdict], fmt.Sprintf("%-*s", verdictIndent-4, x.Verdict))
	fmt.Fprintf(b, "  %s  %s  %s\n", verdict, x.ID, cmp.Or(x.Guarantees, "–"))
	line := func(label, text string) {
		text = terminal.Wrap(escape.Text(text), width, detailIndent)
		fmt.Fprintf(b, "%*s%-*s%s\n", verdictIndent, "", detailIndent-verdictIndent, label, text)
	}
	if x.Verdict == AsAssumed {
		if x.Detail != "" {
			line("seen:", x.Detail)
		}
		return
	}
	line("assumed:", x.Assumption)
	line("seen:", x.Detail)
	if x.Verdict == Otherwise {
		line("program:", x.Program)
	}
}

// Err is the error of the exit code: nil unless an assumption is wrong, or none of those that can
// be tried could be. With strict it is nil only if all of them are as assumed.
func (r *Report) Err(strict bool) error {
	unknown, tried := 0, 0
	for _, x := range r.Results {
		if slices.Contains(IDs(), x.ID) {
			tried++
			if x.Verdict == Unknown {
				unknown++
			}
		}
	}
	switch n := r.Count(Otherwise); {
	case n > 0:
		return fmt.Errorf("%s otherwise here", plural.Of(n, "assumption about Service Bus is", "assumptions about Service Bus are"))
	case strict && unknown > 0:
		return fmt.Errorf("%s could not be tried (--strict)", plural.Of(unknown, "assumption", "assumptions"))
	case unknown > 0 && unknown == tried:
		return fmt.Errorf("%s could not be tried, and no other was", plural.Of(unknown, "assumption", "assumptions"))
	}
	return nil
}
