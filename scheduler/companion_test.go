// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// golden is the wire form as it is documented. Readers in other languages depend on it:
// changing this test means raising the version.
const golden = `{"version":3,"kind":"each","entity":"orders","references":[` +
	`{"messageId":"m-1","sent":"2026-01-31T12:00:00Z","from":"2026-01-31T11:59:59.99Z","until":"2026-01-31T12:00:02Z",` +
	`"deadline":"2026-01-31T12:00:30Z","stated":"ttl","withinMs":30000},` +
	`{"messageId":"m-2","sessionId":"s","sent":"2026-01-31T12:00:00Z","deadline":"2026-01-31T13:00:00Z","stated":"deadline"}]}`

// sent is a message with id that was sent at the instant at, to be received within a minute.
func sent(id string, at time.Time) Reference {
	return Reference{
		MessageID: id, Sent: at, From: at.Add(-5 * time.Millisecond), Until: at.Add(2 * time.Second),
		Deadline: at.Add(time.Minute), Within: time.Minute, Stated: "ttl",
	}
}

func goldenCompanion() Companion {
	return Companion{Entity: "orders", References: []Reference{
		{MessageID: "m-1", Sent: noon, From: noon.Add(-10 * time.Millisecond), Until: noon.Add(2 * time.Second),
			Deadline: noon.Add(30 * time.Second), Within: 30 * time.Second, Stated: "ttl"},
		{MessageID: "m-2", SessionID: "s", Sent: noon, Deadline: noon.Add(time.Hour), Stated: "deadline"},
	}}
}

func TestCompanionHasItsDocumentedWireForm(t *testing.T) {
	c := goldenCompanion()
	body, _, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden, string(body)); diff != "" {
		t.Errorf("wire form (-want +got):\n%s", diff)
	}
	got, err := ParseCompanion([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenCompanion(), got); diff != "" {
		t.Errorf("ParseCompanion (-want +got):\n%s", diff)
	}
}

func TestCompanionComesBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Companion{Entity: rapid.StringMatching(`[a-z/]{1,50}`).Draw(t, "entity"), Attempt: rapid.IntRange(0, 9).Draw(t, "attempt")}
		for range rapid.IntRange(1, 20).Draw(t, "references") {
			ms := func(label string) time.Duration {
				return time.Duration(rapid.Int64Range(1, 1e9).Draw(t, label)) * time.Millisecond
			}
			r := Reference{MessageID: rapid.StringN(1, 128, -1).Draw(t, "id"), Sent: noon.Add(ms("sent")), Deadline: noon.Add(ms("deadline"))}
			if rapid.Bool().Draw(t, "relative") {
				r.Within = ms("within")
			}
			if rapid.Bool().Draw(t, "measured") {
				r.From = r.Sent.Add(-ms("before"))
				r.Until = r.Sent.Add(ms("after"))
			}
			if rapid.Bool().Draw(t, "missed") {
				r.Missed = &Missed{SequenceNumber: rapid.Int64().Draw(t, "number"), EnqueuedTime: r.Sent, Strategy: "native"}
			}
			r.Notified = rapid.StringN(0, 64, -1).Draw(t, "notified")
			want.References = append(want.References, r)
		}
		body, _, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseCompanion(body)
		if err != nil {
			t.Fatalf("ParseCompanion(%s): %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("came back changed (-want +got):\n%s", diff)
		}
	})
}

func TestCompanionThatCannotBeReadSaysWhy(t *testing.T) {
	reference := `{"messageId":"m","deadline":"2026-01-31T12:00:30Z"}`
	for _, tc := range []struct{ name, body, want string }{
		{"empty", ``, "not the JSON"},
		{"not JSON", `<xml/>`, "not the JSON"},
		{"null", `null`, "version 0"},
		{"later version", `{"version":4,"kind":"each","entity":"q","references":[` + reference + `]}`, "version 4"},
		{"no entity", `{"version":1,"kind":"each","references":[` + reference + `]}`, "entity has 0 characters"},
		{"long entity", `{"version":1,"kind":"each","entity":"` + strings.Repeat("q", 326) + `","references":[` + reference + `]}`, "entity has 326 characters"},
		{"unknown kind", `{"version":1,"kind":"some","entity":"q"}`, `kind "some"`},
		{"each of none", `{"version":1,"kind":"each","entity":"q"}`, "names no message"},
		{"slot of some", `{"version":1,"kind":"slot","entity":"q","references":[` + reference + `]}`, "names messages"},
		{"too many", `{"version":1,"kind":"each","entity":"q","references":[` + strings.Repeat(reference+",", 100) + reference + `]}`, "names 101 messages"},
		{"negative attempt", `{"version":1,"kind":"each","entity":"q","attempt":-1,"references":[` + reference + `]}`, "attempt -1"},
		{"no message-id", `{"version":1,"kind":"each","entity":"q","references":[{"deadline":"2026-01-31T12:00:30Z"}]}`, "messageId is empty"},
		{"no message-id and no window", `{"version":2,"kind":"each","entity":"q","references":[{"withinMs":1}]}`, "from and until do not say where"},
		{"long message-id", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"` + strings.Repeat("m", 129) + `","withinMs":1}]}`, "messageId or sessionId has more than 128 characters"},
		{"no deadline", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m"}]}`, "states no deadline"},
		{"negative within", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m","withinMs":-1}]}`, "withinMs is -1"},
		{"absurd within", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m","withinMs":9223372036854775807}]}`, "withinMs is 9223372036854775807"},
		{"half a window", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m","withinMs":1,"from":"2026-01-31T12:00:30Z"}]}`, "go together"},
		{"window backwards", `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m","withinMs":1,"from":"2026-01-31T12:00:30Z","until":"2026-01-31T12:00:29Z"}]}`, "until is before from"},
		{"too large", `{"version":1,"kind":"each","entity":"` + strings.Repeat("q", maxBody) + `"}`, "bytes, at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseCompanion([]byte(tc.body))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ParseCompanion = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// A reference that names no message says where its messages are.
func TestAReferenceMayNameNoMessage(t *testing.T) {
	c := goldenCompanion()
	c.References[0].MessageID = ""
	body, _, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseCompanion(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !got.References[0].WithoutID() || got.References[1].WithoutID() {
		t.Errorf("references %+v, want the first without a name", got.References)
	}
}

func TestFieldsOfLaterWritersAreIgnored(t *testing.T) {
	c, err := ParseCompanion([]byte(`{"version":1,"colour":"red","kind":"each","entity":"q","references":[{"messageId":"m","withinMs":1,"priority":9}]}`))
	if err != nil || c.References[0].MessageID != "m" {
		t.Errorf("ParseCompanion = %+v, %v, want the companion without the fields it does not know", c, err)
	}
}

func TestMessageIDOfACompanionFollowsItsContent(t *testing.T) {
	id := func(change func(*Companion)) string {
		c := goldenCompanion()
		c.Due = noon
		change(&c)
		_, id, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	same := id(func(*Companion) {})
	if again := id(func(*Companion) {}); again != same {
		t.Errorf("the same companion has ids %s and %s, want one", same, again)
	}
	for name, change := range map[string]func(*Companion){
		"due":       func(c *Companion) { c.Due = c.Due.Add(time.Millisecond) },
		"entity":    func(c *Companion) { c.Entity = "other" },
		"reference": func(c *Companion) { c.References[0].MessageID = "m-3" },
		"attempt":   func(c *Companion) { c.Attempt++ },
	} {
		if id(change) == same {
			t.Errorf("another %s gives the same id, want another", name)
		}
	}
}

func FuzzParseCompanion(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"version":2,"kind":"each","entity":"q","references":[{"withinMs":1,"from":"2026-01-31T12:00:29Z","until":"2026-01-31T12:00:30Z"}]}`))
	f.Add([]byte(`{"version":1,"kind":"slot","entity":"q"}`))
	f.Add(fmt.Appendf(nil, `{"version":1,"kind":"each","entity":"q","references":[{"messageId":"m","missed":{"sequenceNumber":1}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseCompanion(body)
		if err != nil {
			return
		}
		out, _, err := c.Marshal()
		if err != nil {
			return // a year that JSON cannot hold
		}
		again, err := ParseCompanion(out)
		if err != nil {
			t.Fatalf("what was read and written cannot be read again: %v\n%s", err, out)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Errorf("reading and writing changes it (-first +second):\n%s", diff)
		}
	})
}

// Times to live are bounded together, however they are stated.
func TestASlotCompanionStandsForAHundredTimesToLiveAtMost(t *testing.T) {
	for _, tt := range []struct {
		lives, spans int
		read         bool
	}{{100, 0, true}, {101, 0, false}, {0, 100, true}, {0, 101, false}, {60, 40, true}, {60, 41, false}} {
		c := Companion{Entity: "orders", SlotEnd: noon}
		for i := range tt.lives {
			c.Lives = append(c.Lives, time.Duration(i+1)*time.Second)
		}
		for i := range tt.spans {
			c.Spans = append(c.Spans, span{time.Duration(i+1) * time.Minute, time.Duration(i+1)*time.Minute + time.Second})
		}
		body, _, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCompanion(body); (err == nil) != tt.read {
			t.Errorf("%d times to live and %d spans: %v, want it read: %v", tt.lives, tt.spans, err, tt.read)
		} else if want := fmt.Sprintf("stands for %d times to live, at most 100", tt.lives+tt.spans); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d times to live and %d spans: %v, want %q", tt.lives, tt.spans, err, want)
		}
	}
}

func TestADeadlineIsReckonedFromTheStampWhereItIsRelative(t *testing.T) {
	stamp := noon.Add(time.Second)
	absolute := Reference{Deadline: noon.Add(time.Minute)}
	if got := absolute.DeadlineAt(stamp); !got.Equal(absolute.Deadline) {
		t.Errorf("an absolute deadline is %v, want %v", got, absolute.Deadline)
	}
	relative := Reference{Deadline: noon.Add(time.Minute), Within: time.Minute}
	if got := relative.DeadlineAt(stamp); !got.Equal(stamp.Add(time.Minute)) {
		t.Errorf("a relative deadline is %v, want %v", got, stamp.Add(time.Minute))
	}
}

// A year that JSON cannot hold is the sender's fault, and only that sender gets the error.
func TestACompanionThatCannotBeEncodedFailsItsCaller(t *testing.T) {
	slotScene(t, func(t *testing.T, s *Scheduler, _ func() []Companion) {
		bad := sent("bad", noon)
		bad.Deadline = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		waits := []func(context.Context) error{
			s.Begin(Companion{Entity: "orders", References: []Reference{sent("good", noon)}}),
			s.Begin(Companion{Entity: "orders", References: []Reference{bad}}),
			s.Begin(Companion{Entity: "orders", References: []Reference{sent("good too", noon)}}),
		}
		for i, wait := range waits {
			if err := wait(t.Context()); errors.Is(err, ErrEncode) != (i == 1) {
				t.Errorf("companion %d = %v, want that only the second cannot be encoded", i, err)
			}
		}
	})
}
