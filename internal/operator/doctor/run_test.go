// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker"
)

// unrepaired lacks the monitor queue, and orders drops what expires.
var unrepaired = []broker.QueueConfig{{Name: "orders", DefaultMessageTimeToLive: time.Hour}}

// run runs the command with a key that has all rights.
func (c *clinic) run(o Options) (string, error) {
	c.Helper()
	cfg := c.config("manage", "bQ==")
	o.Administration = func() (*admin.Client, error) { return c.admin("manage", "bQ=="), nil }
	var out bytes.Buffer
	err := Run(c.Context(), cfg, &out, o)
	return out.String(), err
}

func TestRunFailsIfThereIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, err := open(t, unrepaired...).run(Options{})
		if err == nil || err.Error() != "the doctor found 2 errors" {
			t.Errorf("Run = %v, want 2 errors", err)
		}
		if !strings.HasSuffix(text, "\ncontoso.test: 2 errors.\n") {
			t.Errorf("text ends with %q", text[max(0, len(text)-60):])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if text, err := open(t, wellMade...).run(Options{Strict: true}); err != nil || !strings.HasSuffix(text, "\ncontoso.test: nothing to fix.\n"+nextSteps+"\n") {
			t.Errorf("Run = %v, want nil:\n%s", err, text)
		}
	})
}

func TestStrictFailsForWarningsAndForWhatIsUnknown(t *testing.T) {
	r := &Report{Findings: []Finding{{Severity: Warning}, {Severity: Unknown}, {Severity: Unknown}, {Severity: Advice}}}
	if err := (&Options{}).verdict(r); err != nil {
		t.Errorf("verdict = %v, want nil", err)
	}
	const want = "the doctor found 1 warning and could not check 2 things (--strict)"
	if err := (&Options{Strict: true}).verdict(r); err == nil || err.Error() != want {
		t.Errorf("verdict = %v, want %q", err, want)
	}
}

func TestFixAsksBeforeItChangesAnything(t *testing.T) {
	for answer, agreed := range map[string]bool{"y\n": true, " YES \n": true, "n\n": false, "yess\n": false, "": false, "\n": false} {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, unrepaired...)
			text, err := c.run(Options{Fix: true, In: strings.NewReader(answer)})
			const plan = `
--fix makes these changes in contoso.test:
  create queue overdue-monitor with LockDuration = PT10S, MaxDeliveryCount = 2000, DefaultMessageTimeToLive = unlimited, DeadLetteringOnMessageExpiration = false
  queue orders: set DeadLetteringOnMessageExpiration = true
Proceed? [y/N] `
			if !strings.Contains(text, plan) {
				t.Fatalf("answer %q: the text lacks the plan:\n%s", answer, text)
			}
			_, missing := c.ns.QueueInfo("overdue-monitor")
			if agreed != (missing == nil) || agreed != (err == nil) {
				t.Errorf("answer %q: Run = %v, and the monitor queue: %v", answer, err, missing)
			}
			if agreed != strings.Contains(text, "done: queue orders: set DeadLetteringOnMessageExpiration = true\n") || agreed == strings.Contains(text, "Nothing was changed.\n") {
				t.Errorf("answer %q:\n%s", answer, text)
			}
			// After changes, it examines and reports again.
			if agreed != strings.HasSuffix(text, "\ncontoso.test: nothing to fix.\n"+nextSteps+"\n") {
				t.Errorf("answer %q: the last report is\n%s", answer, text)
			}
		})
	}
}

func TestFixSaysThatThereIsNothingToFix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, err := open(t, wellMade...).run(Options{Fix: true})
		if err != nil || !strings.HasSuffix(text, "There is nothing that --fix can change.\n") {
			t.Errorf("Run = %v:\n%s", err, text)
		}
	})
}

// Where the settings cannot be read, nobody knows what to change, and no script may take it for
// changed.
func TestFixFailsWhereItDoesNotKnowWhatToChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, unrepaired...)
		cfg := c.config("manage", "bQ==")
		cfg.Admin, cfg.NoAdmin, cfg.MonitorQueue = nil, "there is no administration API", "orders"
		for _, o := range []Options{{Fix: true, Yes: true}, {Fix: true, Yes: true, JSON: true}} {
			var out bytes.Buffer
			err := Run(t.Context(), cfg, &out, o)
			if err == nil || !strings.HasPrefix(err.Error(), "--fix does not know what to change, because settings could not be read: namespace, ") {
				t.Errorf("Run = %v, want that it does not know what to change", err)
			}
			if strings.Contains(out.String(), "nothing that --fix can change") {
				t.Errorf("it says that there is nothing to change:\n%s", out.String())
			}
		}
	})
}

func TestFixPrintsOnlyJSONIfAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, err := open(t, unrepaired...).run(Options{Fix: true, Yes: true, JSON: true})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Namespace string
			Findings  []map[string]any
			Fixed     []string
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if got.Namespace != host || len(got.Fixed) != 2 || len(got.Findings) == 0 {
			t.Errorf("JSON %+v, want two repairs and the findings after them", got)
		}
	})
}

func TestFixStopsAtTheFirstChangeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, unrepaired...)
		cfg := c.config("manage", "bQ==")
		o := Options{Fix: true, Yes: true, Administration: func() (*admin.Client, error) { return c.admin("app", "YQ=="), nil }}
		var out bytes.Buffer
		err := Run(t.Context(), cfg, &out, o)
		if err == nil || !strings.HasPrefix(err.Error(), "change not made: create queue overdue-monitor with ") || strings.Contains(out.String(), "done:") {
			t.Errorf("Run = %v:\n%s", err, &out)
		}
		broken := errors.New("no identity")
		o.Administration = func() (*admin.Client, error) { return nil, broken }
		if err := Run(t.Context(), cfg, io.Discard, o); !errors.Is(err, broken) {
			t.Errorf("Run = %v, want the error of the client", err)
		}
	})
}

func TestRunReportsThatItWasInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		cfg := open(t, wellMade...).config("manage", "bQ==")
		for _, cfg := range []Config{cfg, {}} {
			var out bytes.Buffer
			if err := Run(ctx, cfg, &out, Options{}); !errors.Is(err, errInterrupted) || out.Len() > 0 {
				t.Errorf("Run = %v with %q, want the interruption and no text", err, &out)
			}
		}
	})
}

// full takes n writes, and fails after that.
type full struct{ n int }

var errFull = errors.New("disk full")

func (f *full) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestRunReportsThatItCouldNotPrint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, unrepaired...)
		cfg := c.config("manage", "bQ==")
		for n := range 4 { // the report, the plan, the question, the answer to no
			o := Options{Fix: true, In: strings.NewReader("no\n")}
			if err := Run(t.Context(), cfg, &full{n}, o); !errors.Is(err, errFull) {
				t.Errorf("Run with %d writes = %v, want the error of the next", n, err)
			}
		}
		for _, o := range []Options{{}, {JSON: true}} {
			if err := Run(t.Context(), Config{Others: []Check{{Run: func(context.Context) error { return nil }}}}, &full{}, o); !errors.Is(err, errFull) {
				t.Errorf("Run without a namespace = %v, want the error of the write", err)
			}
		}
	})
}

func TestOptionsMustNotContradictEachOther(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""}, {Options{Fix: true}, ""}, {Options{Fix: true, Yes: true, JSON: true}, ""},
		{Options{Yes: true}, "--yes answers the question of --fix; give both"},
		{Options{Fix: true, JSON: true}, "--json leaves no room for the question of --fix; add --yes, or leave out --json"},
	} {
		got := ""
		if err := c.o.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("Check of %+v = %q, want %q", c.o, got, c.want)
		}
	}
}

func TestOnlyErrorsAreShownOnRequest(t *testing.T) {
	check := func(subject string, s Severity) Check {
		return Check{Subject: subject, Name: "reachable", Severity: s, Run: func(context.Context) error { return errors.New("refused") }}
	}
	for _, tt := range []struct {
		others []Check
		want   string
		err    string
	}{
		{[]Check{check("a", Warning), check("b", Error)}, "\nb\n  error    Refused.\n\nconfiguration without a namespace: 1 error, 1 warning.\nOnly sinks and Redis were examined, because no namespace is configured: set --namespace or OVERDUE_NAMESPACE.\n", "the doctor found 1 error"},
		{[]Check{check("a", Warning)}, "\nconfiguration without a namespace: 1 warning.\nOnly sinks and Redis were examined, because no namespace is configured: set --namespace or OVERDUE_NAMESPACE.\n", "the doctor found 1 warning (--strict)"},
	} {
		var out bytes.Buffer
		o := Options{Errors: true, Strict: true, NamespaceVariable: "OVERDUE_NAMESPACE"}
		if err := Run(t.Context(), Config{Others: tt.others}, &out, o); err == nil || err.Error() != tt.err || out.String() != tt.want {
			t.Errorf("Run = %v, %q; want %q, %q", err, &out, tt.err, tt.want)
		}
		o.JSON = true
		out.Reset()
		if err := Run(t.Context(), Config{Others: tt.others}, &out, o); err == nil || strings.Contains(out.String(), "warning") || strings.Contains(out.String(), `"b"`) != (len(tt.others) == 2) {
			t.Errorf("Run = %v, JSON %s, want the errors alone", err, &out)
		}
	}
}

func TestWithoutANamespaceRunSaysWhatItWouldCheck(t *testing.T) {
	o := Options{NamespaceVariable: "OVERDUE_NAMESPACE"}
	var out bytes.Buffer
	if err := Run(t.Context(), Config{}, &out, o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"There is nothing to examine, because no namespace is configured: set --namespace or OVERDUE_NAMESPACE.\n",
		"\n  OVERDUE_NAMESPACE='Endpoint=sb://…' overdue doctor\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, &out)
		}
	}
	out.Reset()
	o.JSON = true
	if err := Run(t.Context(), Config{}, &out, o); err != nil || !strings.Contains(out.String(), `"hint": "no namespace is configured: `) || !strings.Contains(out.String(), `"findings": []`) {
		t.Errorf("Run = %v, JSON %s", err, &out)
	}
}

func TestWithoutANamespaceRunChecksTheRest(t *testing.T) {
	down := Check{Subject: "sink pager", Name: "reachable", Severity: Error, Fix: "check alerts[0]", Run: func(context.Context) error { return errors.New("connection refused") }}
	var out bytes.Buffer
	err := Run(t.Context(), Config{Others: []Check{down}}, &out, Options{NamespaceVariable: "OVERDUE_NAMESPACE"})
	if err == nil || err.Error() != "the doctor found 1 error" {
		t.Errorf("Run = %v, want 1 error", err)
	}
	const want = "\nsink pager\n  error    Connection refused.\n           fix: check alerts[0]\n\nconfiguration without a namespace: 1 error.\nOnly sinks and Redis were examined, because no namespace is configured: set --namespace or OVERDUE_NAMESPACE.\n"
	if out.String() != want {
		t.Errorf("text %q, want %q", &out, want)
	}
}
