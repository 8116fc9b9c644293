// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"overdue/internal/amqp"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// encodedWith is a message that was enqueued then, with a time to live in ms (0 = none) and these
// application properties.
func encodedWith(t *testing.T, enqueued time.Time, ttl uint32, properties map[string]any, body []byte) *Letter {
	t.Helper()
	var all amqp.Map
	for name, v := range properties {
		all = append(all, amqp.Pair{Key: name, Value: v})
	}
	raw, err := amqp.AppendValue(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	notes, start := amqp.BeginMap(nil)
	notes = amqp.AppendTimestamp(amqp.AppendSymbol(notes, "x-opt-enqueued-time"), amqp.TimestampOf(enqueued))
	notes = amqp.AppendLong(amqp.AppendSymbol(notes, "x-opt-sequence-number"), 42)
	m := amqp.Message{
		Header:                amqp.Header{TTL: ttl, HasTTL: ttl > 0}.Raw(),
		MessageAnnotations:    amqp.EndMap(notes, start, 2),
		ApplicationProperties: raw,
		Body:                  body,
	}
	l, err := Parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// copyOf is the copy of a dead letter, as a reader sees it.
func copyOf(t *testing.T, c *Copying, l *Letter) *Letter {
	t.Helper()
	encoded, err := c.Encode(orders, l)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := Parse(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestACopyHasTheDeadlineThatItsMessageHad(t *testing.T) {
	enqueued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) amqp.Timestamp { return amqp.TimestampOf(enqueued.Add(d)) }
	for name, c := range map[string]struct {
		properties       map[string]any
		ttl              uint32
		copying          Copying
		life             time.Duration
		within, complete string
	}{
		"none":                               {},
		"a time to live":                     {ttl: 60_000, life: time.Minute},
		"a duration":                         {properties: map[string]any{"overdue-within": "PT30S"}, within: "30s"},
		"an instant":                         {properties: map[string]any{"overdue-deadline": at(90 * time.Second)}, ttl: 90_500, life: 90500 * time.Millisecond, within: "1m30s"},
		"that of CloudEvents":                {properties: map[string]any{"ce-expirytime": "2026-01-01T00:00:05.25Z"}, within: "5.25s"},
		"the one that counts":                {properties: map[string]any{"overdue-within": "30s", "ce-expirytime": "2026-01-01T00:00:05Z"}, within: "30s"},
		"completion":                         {properties: map[string]any{"overdue-complete-within": "1h"}, complete: "1h"},
		"one that was over":                  {properties: map[string]any{"overdue-deadline": at(-time.Second)}, ttl: 1000, life: time.Second},
		"one in two hundred years":           {properties: map[string]any{"overdue-deadline": at(200 * 365 * 24 * time.Hour)}},
		"some that cannot be read":           {properties: map[string]any{"overdue-within": "soon", "overdue-complete-within": true}, ttl: 1000, life: time.Second},
		"another deadline":                   {properties: map[string]any{"overdue-within": "30s", "overdue-complete-within": "1h"}, ttl: 1000, copying: Copying{Within: time.Hour}, within: "1h0m0s"},
		"another time to live":               {properties: map[string]any{"overdue-within": "30s"}, ttl: 1000, copying: Copying{TTL: time.Hour}, life: time.Hour},
		"none where the message had several": {properties: map[string]any{"overdue-within": "30s", "overdue-complete-within": "1h"}, ttl: 1000, copying: Copying{NoDeadline: true}},
	} {
		got := copyOf(t, &c.copying, encodedWith(t, enqueued, c.ttl, c.properties, nil))
		within, _ := got.Properties[statesWithin].(string)
		complete, _ := got.Properties[statesComplete].(string)
		if got.TimeToLive.Duration != c.life || within != c.within || complete != c.complete {
			t.Errorf("%s: the copy lives for %v, has %q and is to be completed within %q; want %v, %q and %q", name, got.TimeToLive, within, complete, c.life, c.within, c.complete)
		}
		for _, old := range []string{statesDeadline, statesExpiry} {
			if v, ok := got.Properties[old]; ok {
				t.Errorf("%s: the copy has %s = %v, which is over", name, old, v)
			}
		}
	}
}

// A life beyond what a header holds is stated in the properties, from now on.
func TestACopyHasALongTimeToLiveAnew(t *testing.T) {
	const life = 100 * 24 * time.Hour
	enqueued := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	m := amqp.Message{Header: amqp.Header{}.Raw()}
	var header amqp.Header
	var p amqp.Properties
	amqp.StateLife(&header, &p, life, enqueued)
	m.Header, m.Properties = header.Raw(), p.Raw()
	l, err := Parse(m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	got := copyOf(t, &Copying{}, l)
	again, err := amqp.DecodeProperties(got.message.Properties)
	if err != nil || got.TimeToLive.Duration != life || time.Since(again.CreationTime.Time()) > time.Hour {
		t.Errorf("the copy lives for %v from %v on, %v; want %v from now on", got.TimeToLive, again.CreationTime.Time(), err, life)
	}
}

func TestEditsKeepTheTypesOfProperties(t *testing.T) {
	edits := func(pairs ...string) (e Edits) {
		for i := 0; i < len(pairs); i += 2 {
			if err := e.Add(pairs[i], &pairs[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	before := map[string]any{
		"text": "1", "int": int32(1), "small": int8(1), "long": int64(1), "natural": uint16(1), "float": float32(1.5), "double": 1.5, "yes": true, "old": "x", "kept": amqp.Symbol("s"),
	}
	l := encodedWith(t, time.Now(), 0, before, nil)
	e := edits("text", "7", "int", "7", "small", "-7", "long", "7", "natural", "7", "float", "2.5", "double", "2.5", "yes", "false", "new", "7", "new text", "seven")
	if err := e.Add("old", nil); err != nil {
		t.Fatal(err)
	}
	c := Copying{Edits: e}
	got := copyOf(t, &c, l).Properties
	maps.DeleteFunc(got, func(name string, _ any) bool { return strings.HasPrefix(name, "overdue-") })
	want := Properties{
		"text": "7", "int": int32(7), "small": int8(-7), "long": int64(7), "natural": uint16(7), "float": float32(2.5), "double": 2.5, "yes": false,
		"new": int64(7), "new text": "seven", "kept": amqp.Symbol("s"),
	}
	if !maps.Equal(got, want) {
		t.Errorf("properties %v, want %v", got, want)
	}
	if got, want := c.EditNames(), "double, float, int, long, natural, new, new text, -old, small, text, yes"; got != want {
		t.Errorf("edited: %s, want %s", got, want)
	}
	for want, e := range map[string]Edits{
		`property "int": its value is of type int32, and "3000000000" is none`: edits("int", "3000000000"),
		`property "yes": its value is of type bool, and "1" is none`:           edits("yes", "1"),
		`property "double": its value is of type float64, and "x" is none`:     edits("double", "x"),
		`property "kept": its value is neither text nor a number`:              edits("kept", "x"),
	} {
		if _, err := (&Copying{Edits: e}).Encode(orders, l); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Encode = %v, want %q", err, want)
		}
	}
	for _, name := range []string{"", PropertyNumber, statesWithin, "overdue-anything", deadLetterReason, statesExpiry} {
		if err := new(Edits).Add(name, new("x")); err == nil {
			t.Errorf("an edit of %q = nil, want an error", name)
		}
	}
	twice := Edits{"kind": new("tea")}
	if err := twice.Add("kind", nil); err == nil || !strings.Contains(err.Error(), `"kind" is edited twice`) {
		t.Errorf("a second edit of a property = %v, want an error", err)
	}
}

func TestABodyIsReplacedByOneOfItsKind(t *testing.T) {
	for name, c := range map[string]struct{ before, want []byte }{
		"data":           {amqp.AppendData(nil, []byte("old")), amqp.AppendData(nil, []byte("new"))},
		"none":           {nil, amqp.AppendData(nil, []byte("new"))},
		"a text":         {amqp.AppendValueSection(nil, amqp.AppendString(nil, "old")), amqp.AppendValueSection(nil, amqp.AppendString(nil, "new"))},
		"bytes":          {amqp.AppendValueSection(nil, amqp.AppendBinary(nil, []byte("old"))), amqp.AppendValueSection(nil, amqp.AppendBinary(nil, []byte("new")))},
		"another value":  {amqp.AppendValueSection(nil, amqp.AppendLong(nil, 7)), nil},
		"several values": {amqp.AppendRaw(amqp.AppendDescriptor(nil, amqp.CodeAMQPSequence), amqp.Raw{0x45}), nil},
	} {
		l := encodedWith(t, time.Now(), 0, nil, c.before)
		encoded, err := (&Copying{Body: new("new")}).Encode(orders, l)
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), "the body is neither data nor text") {
				t.Errorf("%s: Encode = %v, want that it cannot be replaced", name, err)
			}
			continue
		}
		if err != nil || !strings.HasSuffix(string(encoded), string(c.want)) {
			t.Errorf("%s: the copy is %x, %v; want %x at its end", name, encoded, err, c.want)
		}
	}
}

func TestDurationsOfCopiesAreChecked(t *testing.T) {
	for want, c := range map[string]Copying{
		"A is 1ns; it must be at least 1ms":            {Within: 1},
		"B is -1s; it must be at least 1ms":            {TTL: -time.Second},
		"C is 876001h0m0s; it must be at most 100 yea": {Delay: amqp.LongestLife + time.Hour},
		"no deadline is wanted, and A or B states one": {NoDeadline: true, TTL: time.Hour},
	} {
		if err := c.Check("A", "B", "C"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Check of %+v = %v, want %q", c, err, want)
		}
	}
}

// An edit that one dead letter does not take changes none of them, also where others come before it.
func TestEditsAreCheckedBeforeAnythingIsCopied(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(250)
		path := filepath.Join(s.TempDir(), "journal.db")
		sender, err := s.ns.Client(s.T).NewSender("orders", nil)
		if err != nil {
			s.Fatal(err)
		}
		odd := &azservicebus.Message{TimeToLive: new(time.Second), ApplicationProperties: map[string]any{"odd": "text"}}
		if err := sender.SendMessage(s.Context(), odd, nil); err != nil {
			s.Fatal(err)
		}
		s.dead(1)
		for want, c := range map[string]Copying{
			`dead letter 1, property "odd": its value is of type bool, and "x" is none; nothing was changed`: {Edits: Edits{"odd": new("x")}},
			"a new body is for one dead letter, and 252 were chosen":                                         {Body: new("x")},
		} {
			o, err := s.resubmit(path, func(r *Resubmission) { r.Copying = c })
			if err := Failure(orders, err); err == nil || err.Error() != want || o.Copied != 0 || len(s.copies()) != 0 {
				s.Errorf("resubmission: %+v, %v, want no copy and %q", o, err, want)
			}
		}
		if n := len(s.letters(orders, everything)); n != 252 {
			s.Errorf("%d dead letters are left, want all 252", n)
		}
		if o, err := s.resubmit(path, func(r *Resubmission) { r.Copying.Edits = Edits{"even": new("x")} }); err != nil || o.Copied != 252 {
			s.Errorf("resubmission with an edit that all take: %+v, %v", o, err)
		}
	})
}

// Copies become available after their delay, and their deadlines count from then.
func TestADelayedCopyIsScheduled(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(3)
		path := filepath.Join(s.TempDir(), "journal.db")
		o, err := s.resubmit(path, func(r *Resubmission) { r.Copying.Delay = 10 * time.Minute })
		if err != nil || o.Copied != 3 {
			s.Fatalf("resubmission: %+v, %v, want 3 copied", o, err)
		}
		q, _ := s.ns.Broker.Queue("again")
		if got := q.Counts(); got.Scheduled != 3 || got.Active != 0 {
			s.Errorf("the target has %+v, want 3 scheduled", got)
		}
		time.Sleep(10 * time.Minute)
		if got := q.Counts(); got.Scheduled != 0 || got.Active != 3 {
			s.Errorf("after the delay the target has %+v, want 3 active", got)
		}
		time.Sleep(2 * time.Second) // the time to live was a second
		if got := q.Counts(); got.Active != 0 {
			s.Errorf("after the time to live the target has %+v, want none active", got)
		}
	})
}

// A copy that waits for its time is found, and is not sent again.
func TestADelayedCopyIsNotSentTwice(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(10)
		path := filepath.Join(s.TempDir(), "journal.db")
		delayed := func(r *Resubmission) { r.Copying.Delay = time.Hour }
		arrived := s.cutOnArrival(10)
		_, err := s.resubmit(path, delayed)
		arrived()
		if err == nil || len(s.copies()) != 10 {
			s.Fatalf("the first run ended with %v and %d copies, want an error and all 10", err, len(s.copies()))
		}
		time.Sleep(2 * time.Minute) // locks of the run that was cut lapse
		o, err := s.resubmit(path, delayed)
		if err != nil || o.Finished != 10 || o.Copied != 0 || len(s.letters(orders, everything)) != 0 {
			s.Errorf("the second run: %+v, %v, want 10 finished and none left", o, err)
		}
		for number, n := range s.copies() {
			if n != 1 {
				s.Errorf("dead letter %d has %d copies", number, n)
			}
		}
	})
}

// A copy has the time to live of its message, so it may be a dead letter itself when the next run
// looks for it.
func TestACopyThatMissedItsDeadlineAgainIsFound(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(10)
		path := filepath.Join(s.TempDir(), "journal.db")
		arrived := s.cutOnArrival(10)
		_, err := s.resubmit(path, nil)
		arrived()
		if err == nil {
			s.Fatal("the first run ended without an error")
		}
		time.Sleep(2 * time.Minute)
		if n := len(s.letters(Place{Entity: "again"}, everything)); n != 10 {
			s.Fatalf("%d copies are dead letters, want 10", n)
		}
		o, err := s.resubmit(path, nil)
		if err != nil || o.Finished != 10 || o.Copied+len(o.Unsure)+len(s.copies()) != 0 || len(s.letters(orders, everything)) != 0 {
			s.Errorf("the second run: %+v, %v, %d copies; want 10 finished, and none sent or left", o, err, len(s.copies()))
		}
	})
}

// Whether a copy was received is known of some dead letters, and not of all.
func TestOnlyChosenLettersAreSentAgain(t *testing.T) {
	play(t, func(s *scene) {
		s.dead(3)
		path := filepath.Join(s.TempDir(), "journal.db")
		j := openJournal(s.T, path)
		if _, err := j.begin([]int64{1, 2, 3}); err != nil {
			s.Fatal(err)
		}
		links := s.links()
		out, err := links.Sender(s.Context(), "again")
		if err != nil {
			s.Fatal(err)
		}
		r := &Resubmission{Links: links, Place: orders, To: "again", IsQueue: true, Out: out, Journal: j, Hold: hold, Resend: true}
		o, err := r.Run(s.Context(), map[int64]bool{2: true})
		if err != nil || o.Copied != 1 || len(o.Unsure) != 2 || s.copies()[2] != 1 || len(s.copies()) != 1 {
			s.Errorf("resubmission of 2: %+v, %v, copies %v; want one copy, and to be unsure of two", o, err, s.copies())
		}
	})
}
