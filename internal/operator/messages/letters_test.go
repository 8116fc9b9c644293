// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
)

func TestListCountsAndShowsWhatIsMeant(t *testing.T) {
	setup(t, 3, func(t *testing.T, s *scene) {
		list := func(o *LettersOptions) string {
			return s.output(func(out io.Writer) error { return List(s.Context(), s.conn, orders, o, out) })
		}
		show := func(o *LettersOptions) string {
			return s.output(func(out io.Writer) error { return Show(s.Context(), s.conn, orders, o, out) })
		}
		all := list(&LettersOptions{})
		for _, want := range []string{"NUMBER", "m-1", "m-3", "TTLExpiredException", "3 of the 3 dead letters of orders.\n", "       3  TTLExpiredException\n"} {
			if !strings.Contains(all, want) {
				t.Errorf("List printed\n%swant %q in it", all, want)
			}
		}
		if got, want := list(&LettersOptions{Limit: 2}), "The first 2 matching dead letters of orders; there are more.\n"; !strings.Contains(got, want) || strings.Contains(got, "m-3") {
			t.Errorf("List of two printed\n%swant %q in it", got, want)
		}
		if got, want := list(&LettersOptions{Filter: dlq.Filter{Reason: new("Other")}}), "None of the 3 dead letters of orders matches.\n"; got != want {
			t.Errorf("List of none printed %q, want %q", got, want)
		}
		narrow := LettersOptions{JSON: true, Filter: dlq.Filter{MessageIDs: []string{"m-2"}}}
		var got struct {
			Read        int `json:"lookedAt"`
			Meant       int
			DeadLetters []struct{ MessageID, DeadLetterReason string }
		}
		if err := json.Unmarshal([]byte(list(&narrow)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Read != 3 || got.Meant != 1 || len(got.DeadLetters) != 1 || got.DeadLetters[0].MessageID != "m-2" {
			t.Errorf("List of m-2 = %+v", got)
		}
		if got := show(&narrow); !strings.Contains(got, `"body": "one coffee"`) {
			t.Errorf("Show of m-2 printed\n%s", got)
		}
		if got := show(&LettersOptions{Limit: 1}); !strings.Contains(got, "messageId: m-1\n") || !strings.Contains(got, "  kind: drink\n") || !strings.Contains(got, "body:\none coffee\n") {
			t.Errorf("Show of the first printed\n%s", got)
		}
		err := Show(s.Context(), s.conn, orders, &LettersOptions{Filter: dlq.Filter{Reason: new("Other")}}, io.Discard)
		if err == nil || err.Error() != "none of the 3 dead letters of orders matches" {
			t.Errorf("Show of none = %v", err)
		}
	})
}

func TestABodyThatIsNoTextIsShownInBase64(t *testing.T) {
	setup(t, 0, func(t *testing.T, s *scene) {
		s.send("orders", SendOptions{Count: 1, MessageID: "raw", Body: "\xff\xfe", TTL: time.Second})
		time.Sleep(2 * time.Second)
		for json, want := range map[bool]string{true: `"bodyBase64": "//4="`, false: "body, in base64:\n//4=\n"} {
			got := s.output(func(out io.Writer) error {
				return Show(s.Context(), s.conn, orders, &LettersOptions{Limit: 1, JSON: json}, out)
			})
			if !strings.Contains(got, want) {
				t.Errorf("Show printed\n%swant %q in it", got, want)
			}
		}
	})
}

func TestWhatHasNoDeadLettersIsRefused(t *testing.T) {
	setup(t, 0, func(t *testing.T, s *scene) {
		for place, want := range map[dlq.Place]string{
			{Entity: "events"}:  "events is a topic",
			{Entity: "nowhere"}: `there is no queue "nowhere"`,
		} {
			for name, err := range map[string]error{
				"List":  List(s.Context(), s.conn, place, &LettersOptions{}, io.Discard),
				"Show":  Show(s.Context(), s.conn, place, &LettersOptions{}, io.Discard),
				"Purge": Purge(s.Context(), s.conn, place, &LettersOptions{Yes: true, All: true}, io.Discard),
			} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %s = %v, want an error with %q", name, place, err, want)
				}
			}
		}
	})
}

// resubmission runs Resubmit for all dead letters of orders, as change has it.
func (s *scene) resubmission(journal string, change func(*ResubmitOptions)) (string, error) {
	s.Helper()
	o := ResubmitOptions{LettersOptions: LettersOptions{Yes: true, All: true, Audit: s.note}, Journal: journal}
	change(&o)
	if err := o.CheckTarget(orders); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err := Resubmit(s.Context(), s.conn, orders, &o, &out)
	return out.String(), err
}

func TestResubmitSendsCopiesOnceAndTakesOff(t *testing.T) {
	setup(t, 3, func(t *testing.T, s *scene) {
		journal := filepath.Join(t.TempDir(), "journal.db")
		if out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.Dry = true }); err != nil || !strings.Contains(out, "Without --dry-run this would resubmit 3 to orders.") {
			t.Errorf("a dry run = %v\n%s", err, out)
		}
		for answer, want := range map[string]string{"no\n": "Resubmit 3 to orders? [y/N] Nothing was changed.", "": "Resubmit 3 to orders? [y/N] \nNothing was changed."} {
			out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.Yes, o.In = false, strings.NewReader(answer) })
			if asked := answer != ""; asked != (err == nil) || !strings.Contains(out, want) {
				t.Errorf("answered with %q = %v\n%swant %q, and an error without an answer", answer, err, out, want)
			}
		}
		s.checkDeadLetters(3)
		if out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.To, o.Yes, o.In = "again", false, strings.NewReader("y\n") }); err != nil || !strings.Contains(out, "3 resubmitted to again.") {
			t.Errorf("resubmission = %v\n%s", err, out)
		}
		s.checkDeadLetters(0)
		if again, _ := s.ns.Broker.Queue("again"); again.Counts().Active != 3 {
			t.Errorf("the target has %d messages, want 3", again.Counts().Active)
		}
		if out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.To = "again" }); err != nil || !strings.Contains(out, "orders has no dead letters.") {
			t.Errorf("once more = %v\n%s", err, out)
		}
		got := resubmitResult{survey: &survey{&dlq.Survey{}}}
		out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.To, o.JSON = "again", true })
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Copied != 0 || got.Unsure == nil || got.To != "again" {
			t.Errorf("once more as JSON = %v\n%s", err, out)
		}
	})
}

func TestCopiesHaveIDsOfTheirOwnWhereTheTargetDetectsDuplicates(t *testing.T) {
	setup(t, 2, func(t *testing.T, s *scene) {
		journal := filepath.Join(t.TempDir(), "journal.db")
		for want, change := range map[string]func(*ResubmitOptions){
			`there is no queue or topic "nowhere"`:           func(o *ResubmitOptions) { o.To = "nowhere" },
			"unique detects duplicates and would drop":       func(o *ResubmitOptions) { o.To, o.KeepIDs = "unique", true },
			"--new-ids and --keep-ids are both given":        func(o *ResubmitOptions) { o.NewIDs, o.KeepIDs = true, true },
			"--within is 1ns; it must be at least 1ms":       func(o *ResubmitOptions) { o.Copying.Within = 1 },
			"--ttl is -1ns; it must be at least 1ms":         func(o *ResubmitOptions) { o.Copying.TTL = -1 },
			"no/$DeadLetterQueue":                            func(o *ResubmitOptions) { o.To = "no/$DeadLetterQueue" },
			"whether again detects duplicates, and would dr": func(o *ResubmitOptions) { o.To, s.conn.Admin = "again", &entities.Admin{} },
		} {
			admin := s.conn.Admin
			if _, err := s.resubmission(journal, change); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("resubmission = %v, want an error with %q", err, want)
			}
			s.conn.Admin = admin
		}
		s.checkDeadLetters(2)
		out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.To, o.JSON = "unique", true })
		got := resubmitResult{survey: &survey{&dlq.Survey{}}}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Copied != 2 {
			t.Fatalf("resubmission = %v\n%s", err, out)
		}
		r, err := s.ns.Client(t).NewReceiverForQueue("unique", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.PeekMessages(s.Context(), 1, nil)
		if err != nil || len(ms) != 1 || ms[0].MessageID == "m-1" {
			t.Errorf("the target has %v, %v; want a copy with an id of its own", ms, err)
		}
	})
}

func TestListGroupsByReason(t *testing.T) {
	setup(t, 3, func(t *testing.T, s *scene) {
		r, err := s.ns.Client(t).NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.send("orders", SendOptions{Count: 1, Body: "x"})
		ms, err := r.ReceiveMessages(s.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeadLetterMessage(s.Context(), ms[0], nil); err != nil {
			t.Fatal(err)
		}
		list := func(o LettersOptions) string {
			return s.output(func(out io.Writer) error { return List(s.Context(), s.conn, orders, &o, out) })
		}
		groups := list(LettersOptions{GroupBy: "reason"})
		for _, want := range []string{"COUNT", "\n3  ", "TTLExpiredException\n", "\n1  ", "(no reason)\n", "4 of the 4 dead letters of orders.\n"} {
			if !strings.Contains(groups, want) {
				t.Errorf("groups are\n%swant %q in them", groups, want)
			}
		}
		var got struct{ Groups []dlq.Group }
		if err := json.Unmarshal([]byte(list(LettersOptions{GroupBy: "reason", JSON: true})), &got); err != nil {
			t.Fatal(err)
		}
		if g := got.Groups; len(g) != 2 || g[0].Reason != "TTLExpiredException" || g[0].Count != 3 || g[1].Reason != "" || g[1].Count != 1 || g[0].Latest.Before(g[0].Earliest) {
			t.Errorf("groups = %+v", g)
		}
		if got, want := list(LettersOptions{Filter: dlq.Filter{Reason: new("")}}), "1 of the 4 dead letters of orders.\n"; !strings.Contains(got, want) {
			t.Errorf("those without a reason:\n%swant %q", got, want)
		}
	})
}

// An edit that one dead letter does not take changes none of them.
func TestEditsAreCheckedBeforeAnythingIsChanged(t *testing.T) {
	setup(t, 2, func(t *testing.T, s *scene) {
		journal := filepath.Join(t.TempDir(), "journal.db")
		body := filepath.Join(t.TempDir(), "body")
		if err := os.WriteFile(body, []byte("two coffees"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.send("orders", SendOptions{Count: 1, MessageID: "other", TTL: time.Second, Properties: []string{"kind=1"}})
		time.Sleep(2 * time.Second)
		for want, change := range map[string]func(*ResubmitOptions){
			"a new body is for one dead letter, and 3 were chosen": func(o *ResubmitOptions) { o.BodyFile = body },
			"--body and --body-file are both given":                func(o *ResubmitOptions) { o.BodyFile, o.Copying.Body = body, new("") },
			"--body-file - takes standard input":                   func(o *ResubmitOptions) { o.BodyFile, o.Yes, o.Dry = "-", false, false },
			"--body-file: open /nowhere":                           func(o *ResubmitOptions) { o.BodyFile = "/nowhere" },
			"--delay is -1s; it must be at least 1ms":              func(o *ResubmitOptions) { o.Copying.Delay = -time.Second },
			`dead letter 3, property "kind": its value is`:         func(o *ResubmitOptions) { o.Copying.Edits = dlq.Edits{"kind": new("food")} },
		} {
			for _, dry := range []bool{true, false} {
				s.lines = nil
				out, err := s.resubmission(journal, func(o *ResubmitOptions) { o.Dry = dry; change(o) })
				if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(out, "resubmit") || s.lines != nil {
					t.Errorf("resubmission, dry %v = %v, want an error with %q and no word of an action\n%s%v", dry, err, want, out, s.lines)
				}
			}
		}
		s.checkDeadLetters(3)
		s.lines = nil
		out, err := s.resubmission(journal, func(o *ResubmitOptions) {
			o.To, o.BodyFile, o.Dry = "again", body, true
			o.Filter.MessageIDs = []string{"m-2"}
			o.Copying.Delay = time.Minute
			o.Copying.Edits = dlq.Edits{"kind": new("food")}
		})
		if want := "this would resubmit 1 to again, available after 1m0s, with edits of the body, kind.\n"; err != nil || !strings.Contains(out, want) {
			t.Errorf("a dry run = %v\n%swant %q", err, out, want)
		}
		out, err = s.resubmission(journal, func(o *ResubmitOptions) {
			o.To, o.BodyFile = "again", body
			o.Filter.MessageIDs = []string{"m-2"}
			o.Copying.Edits = dlq.Edits{"kind": new("food")}
			o.As, o.Why, o.Given = "anna", "a test", "message-id m-2"
		})
		if err != nil || !strings.Contains(out, "1 resubmitted to again.") {
			t.Fatalf("resubmission = %v\n%s", err, out)
		}
		r, err := s.ns.Client(t).NewReceiverForQueue("again", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.PeekMessages(s.Context(), 1, nil)
		if err != nil || len(ms) != 1 || string(ms[0].Body) != "two coffees" || ms[0].ApplicationProperties["kind"] != "food" || *ms[0].TimeToLive != time.Second {
			t.Errorf("the copy is %+v, %v", ms, err)
		}
		want := []audit.Line{{Event: audit.Started, Action: "resubmit", Entity: "orders", To: "again", Filter: "message-id m-2", Edits: "the body, kind", Chosen: 1, Person: "anna", Why: "a test"}}
		want = append(want, want[0])
		want[1].Event, want[1].Done = audit.Ended, 1
		if diff := cmp.Diff(want, s.lines); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

func TestOfASubscriptionATargetIsNeeded(t *testing.T) {
	var o ResubmitOptions
	audit := dlq.Place{Entity: "events", Subscription: "audit"}
	if err := o.CheckTarget(audit); err == nil || !strings.Contains(err.Error(), "say with --to where") {
		t.Errorf("CheckTarget without a target = %v", err)
	}
}

func TestTheJournalIsThatOfNamespacePlaceAndTarget(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/cache")
	setup(t, 0, func(t *testing.T, s *scene) {
		paths := map[string]bool{}
		for _, to := range []string{"orders", "Again", "again"} {
			path, err := (&ResubmitOptions{To: to}).journalPath(s.conn, orders)
			if err != nil || !strings.HasPrefix(path, "/cache/overdue/resubmit-") {
				t.Errorf("journal for %s = %s, %v", to, path, err)
			}
			paths[path] = true
		}
		if len(paths) != 2 {
			t.Errorf("journals %v, want one for each target in any case", paths)
		}
	})
}

func TestPurgeTakesOffWhatIsMeant(t *testing.T) {
	setup(t, 3, func(t *testing.T, s *scene) {
		purge := func(o *LettersOptions) string {
			o.Audit = s.note
			return s.output(func(out io.Writer) error { return Purge(s.Context(), s.conn, orders, o, out) })
		}
		if got := purge(&LettersOptions{Yes: true, Filter: dlq.Filter{MessageIDs: []string{"m-1", "m-3"}}}); !strings.HasSuffix(got, "\n2 purged.\n") {
			t.Errorf("Purge printed\n%s", got)
		}
		s.checkDeadLetters(1)
		got := purgeResult{survey: &survey{&dlq.Survey{}}}
		if err := json.Unmarshal([]byte(purge(&LettersOptions{Yes: true, All: true, JSON: true})), &got); err != nil || got.Purged != 1 || len(got.Locked)+len(got.Gone) != 0 {
			t.Errorf("Purge as JSON = %+v, %v; want 1 purged", got, err)
		}
		s.checkDeadLetters(0)
		if got, want := purge(&LettersOptions{Yes: true, All: true}), "orders has no dead letters.\nThere is nothing to do.\n"; got != want {
			t.Errorf("Purge of nothing printed %q, want %q", got, want)
		}
	})
}

func TestLockedDeadLettersAreLeft(t *testing.T) {
	setup(t, 2, func(t *testing.T, s *scene) {
		r, err := s.ns.Client(t).NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReceiveMessages(s.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = Purge(s.Context(), s.conn, orders, &LettersOptions{Yes: true, All: true, Audit: s.note}, &out)
		want := "1 are locked, by another client or by a run that was killed, and were left: 1; run it again when their locks have lapsed, in 30s at most"
		if err == nil || err.Error() != want || !strings.HasSuffix(out.String(), "\n1 purged.\n") {
			t.Errorf("Purge = %v, want %q\n%s", err, want, &out)
		}
		s.checkDeadLetters(1)
		if _, err := s.resubmission(filepath.Join(t.TempDir(), "journal.db"), func(o *ResubmitOptions) { o.To = "again" }); err == nil || err.Error() != want {
			t.Errorf("Resubmit = %v, want %q", err, want)
		}
	})
}

func TestTheLockIsThatOfThePlace(t *testing.T) {
	setup(t, 0, func(t *testing.T, s *scene) {
		for place, want := range map[dlq.Place]time.Duration{
			orders: 30 * time.Second, {Entity: "events", Subscription: "Audit"}: time.Minute, {Entity: "nowhere"}: 0,
		} {
			if got := lockOf(s.Context(), s.conn, place); got != want || dlq.Hold(got) != max(want, dlq.ShortestLock)*2/3 {
				t.Errorf("the lock of %s is %v, to be held for %v; want %v", place, got, dlq.Hold(got), want)
			}
		}
	})
	if err := lockedError([]int64{1}, 0); err == nil || !strings.HasSuffix(err.Error(), "in 5m0s at most") {
		t.Errorf("the error of an unknown lock = %v", err)
	}
}

func TestOptionsAreReadAndChecked(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	o := LettersOptions{DueBefore: "-1h", DueAfter: "2026-01-31T17:00:00Z", Properties: []string{"kind=drink", "empty="}, Rate: 100}
	if err := o.Check(now); err != nil {
		t.Fatal(err)
	}
	want := dlq.Filter{
		DueBefore: now.Add(-time.Hour), DueAfter: time.Date(2026, 1, 31, 17, 0, 0, 0, time.UTC), Properties: map[string]string{"kind": "drink", "empty": ""},
	}
	if diff := cmp.Diff(want, o.Filter); diff != "" || !o.Narrows() {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	for want, o := range map[string]LettersOptions{
		`--due-before: "soon" is neither`:                {DueBefore: "soon"},
		`--property is "kind"; write name=value`:         {Properties: []string{"kind"}},
		`--property is "=x"; write name=value`:           {Properties: []string{"=x"}},
		"--json leaves no place for a question":          {Asks: true, JSON: true},
		"--yes without a filter means every dead letter": {Asks: true, Yes: true},
	} {
		if err := o.Check(now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Check of %+v = %v, want %q", o, err, want)
		}
	}
	for _, o := range []LettersOptions{{JSON: true}, {Asks: true, JSON: true, Dry: true}, {Asks: true, Yes: true, All: true}, {Asks: true, Yes: true, Limit: 1}} {
		if err := o.Check(now); err != nil {
			t.Errorf("Check of %+v = %v, want nil", o, err)
		}
	}
}

func TestOneDeadLetterIsSingular(t *testing.T) {
	for want, s := range map[string]*dlq.Survey{
		"The only dead letter of orders.\n":                             {Entity: "orders", Read: 1, Chosen: 1},
		"The only dead letter of orders does not match.\n":              {Entity: "orders", Read: 1},
		"The first 1 matching dead letter of orders; there are more.\n": {Entity: "orders", Read: 2, Chosen: 1, More: true},
		"1 of the 2 dead letters of orders.\n":                          {Entity: "orders", Read: 2, Chosen: 1},
	} {
		var b strings.Builder
		if err := (&survey{s}).write(&b); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(b.String(), "\n"); got+"\n" != want {
			t.Errorf("%d of %d: %q, want %q", s.Chosen, s.Read, got, want)
		}
	}
}
