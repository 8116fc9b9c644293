// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a namespace and what is configured for it. It reports what would keep
// Overdue from meeting deadlines, each finding with the command or the setting that fixes it.
//
// [Examine] reads over the same connections as the program itself: if the doctor cannot reach an
// entity, neither can the program. Pure functions judge what it read (monitorqueue.go, entity.go,
// redis.go). If a key lacks a right, the checks that need it are reported as unknown, and the
// others go on.
//
// Only [Apply] changes anything, and it deletes nothing. [MeasureLag] creates queues of its own and
// deletes those. [Run] is the command `overdue doctor`: it examines, prints, asks and applies.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// changeTimeout bounds one change of an entity.
const changeTimeout = 30 * time.Second

// Options say what [Run] does with the findings.
type Options struct {
	JSON   bool // print only the result, as JSON
	Errors bool // print no other findings than errors
	Strict bool // fail for warnings, and for what could not be checked
	Fix    bool // make the repairs, after asking
	Yes    bool // do not ask

	In    io.Reader // has the answer to the question
	Color bool
	Width int // of the terminal; 0 = none, so lines are not broken
	// Administration makes the client that changes entities. It is called only to make repairs.
	Administration func() (*admin.Client, error)
	// NamespaceVariable is the environment variable that names the namespace, for the hint to set it.
	NamespaceVariable string
}

// Check returns an error if options contradict each other.
func (o *Options) Check() error {
	switch {
	case o.Yes && !o.Fix:
		return errors.New("--yes answers the question of --fix; give both")
	case o.Fix && o.JSON && !o.Yes:
		return errors.New("--json leaves no room for the question of --fix; add --yes, or leave out --json")
	}
	return nil
}

// result is the JSON form of what Run found.
type result struct {
	*Report
	Hint  string   `json:"hint,omitempty"`
	Fixed []string `json:"fixed,omitempty"`
}

// Run examines the namespace, prints the report and makes the repairs if it is asked to. Without a
// namespace, where cfg.Dial is nil, it makes the checks that need none. The error is that of the
// exit code: nil unless there are findings of severity Error, or Run itself failed. w must not
// escape, because it gets colors.
func Run(ctx context.Context, cfg Config, w io.Writer, o Options) error {
	examine, found := Examine, result{}
	if cfg.Dial == nil {
		examine, found.Hint = ExamineOthers, "no namespace is configured: set --namespace or "+o.NamespaceVariable
	}
	found.Report = examine(ctx, cfg)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := o.write(w, &found); err != nil {
		return err
	}
	if o.Fix {
		var err error
		if found.Fixed, err = fix(ctx, found.Report, w, &o); err != nil {
			return err
		}
		if len(found.Fixed) > 0 {
			found.Report = Examine(ctx, cfg)
			if err := o.write(w, &found); err != nil {
				return err
			}
		}
	}
	if o.JSON {
		printed := found
		if o.Errors {
			printed.Report = found.errors()
		}
		if err := escape.WriteJSON(w, printed); err != nil {
			return err
		}
	}
	return o.verdict(found.Report)
}

// write writes the report for people, unless the result is JSON.
func (o *Options) write(w io.Writer, found *result) error {
	shown := found.worstFirst()
	switch {
	case o.JSON:
		return nil
	case found.Hint != "" && len(shown) == 0:
		_, err := fmt.Fprintf(w, introduction, found.Hint, o.NamespaceVariable)
		return err
	case o.Errors:
		shown = found.errors().worstFirst()
	}
	if err := found.writeText(w, shown, o.Color, o.Width); err != nil {
		return err
	}
	last := ""
	switch {
	case found.Hint != "":
		last = fmt.Sprintf("Only sinks and Redis were examined, because %s.", found.Hint)
	case !o.Errors && found.Count(Error) == 0:
		last = nextSteps
	default:
		return nil
	}
	_, err := fmt.Fprintln(w, terminal.Wrap(last, o.Width, 0))
	return err
}

// nextSteps is the last line where there is no error.
const nextSteps = "Only the namespace itself can confirm what Overdue assumes of it: overdue doctor verify tries that, and overdue doctor lag measures."

// introduction is printed when no namespace is configured. It fits into 100 columns.
const introduction = `There is nothing to examine, because %s.
Overdue knows everything about the embedded broker that the doctor would ask.

In a namespace the doctor checks
  - that the namespace can be reached, its tier, and whether the clock of this machine agrees with it
  - the monitor queue: that it exists, has no sessions, partitions or forwarding, keeps messages for
    long, and locks them for long enough
  - each monitored queue and topic: the Send and Listen rights, dead-lettering on expiration, times to
    live and lock durations against deadlines, sessions, duplicate detection, partitions, forwarding,
    auto-delete, status
  - the sinks of alerts (--send-test sends a test event to each)
  - Redis, if there is one: version, rights, TLS, memory, and the processes that share it

Try it with a namespace, or with a broker on this machine:
  overdue doctor --namespace contoso.servicebus.windows.net
  %s='Endpoint=sb://…' overdue doctor
  overdue doctor verify                 # tries what Overdue assumes of the namespace
  overdue doctor lag                    # measures native against eager expiry there
  overdue demo                          # the same on an embedded broker
`

// verdict is the error of the exit code.
func (o *Options) verdict(r *Report) error {
	failures, warnings, unknown := r.Count(Error), r.Count(Warning), r.Count(Unknown)
	switch {
	case failures > 0:
		return fmt.Errorf("the doctor found %s", counted(failures, Error))
	case o.Fix && len(r.unread()) > 0:
		return fmt.Errorf("--fix does not know what to change, because settings could not be read: %s", strings.Join(r.unread(), ", "))
	case o.Strict && warnings+unknown > 0:
		var what []string
		if warnings > 0 {
			what = append(what, "found "+counted(warnings, Warning))
		}
		if unknown > 0 {
			what = append(what, "could not check "+plural.Of(unknown, "thing", "things"))
		}
		return fmt.Errorf("the doctor %s (--strict)", strings.Join(what, " and "))
	}
	return nil
}

// planIndent is the indent of a plan that takes several lines.
const planIndent = 4

// fix shows the repairs, asks, and makes them. It returns those that it made.
func fix(ctx context.Context, r *Report, w io.Writer, o *Options) (done []string, err error) {
	say := func(format string, args ...any) error {
		if o.JSON {
			return nil
		}
		_, err := io.WriteString(w, escape.Lines(fmt.Sprintf(format, args...)))
		return err
	}
	repairs := r.Repairs()
	switch {
	case len(repairs) == 0 && len(r.unread()) > 0:
		return nil, nil // the verdict says so
	case len(repairs) == 0:
		return nil, say("There is nothing that --fix can change.\n")
	}
	var plan bytes.Buffer
	fmt.Fprintf(&plan, "\n--fix makes these changes in %s:\n", r.Namespace)
	for _, r := range repairs {
		fmt.Fprintf(&plan, "  %s\n", terminal.Wrap(r.String(), o.Width, planIndent))
	}
	if err := say("%s", plan.String()); err != nil {
		return nil, err
	}
	if !o.Yes {
		agreed, err := terminal.Ask(w, o.In, "Proceed?") // not with JSON: see Check
		if err != nil || !agreed {
			return nil, err
		}
	}
	client, err := o.Administration()
	if err != nil {
		return nil, err
	}
	for _, r := range repairs {
		changing, cancel := context.WithTimeout(ctx, changeTimeout)
		err := Apply(changing, client, r)
		cancel()
		if err != nil {
			return done, fmt.Errorf("change not made: %w", err)
		}
		done = append(done, r.String())
		if err := say("%s\n", terminal.Wrap("done: "+r.String(), o.Width, planIndent)); err != nil {
			return done, err
		}
	}
	return done, nil
}
