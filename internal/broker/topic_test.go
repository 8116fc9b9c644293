// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// topicOf is a namespace with topic t and subscription s, which has these rules.
func topicOf(t testing.TB, cfg SubscriptionConfig, rules ...RuleConfig) *Namespace {
	t.Helper()
	cfg.Name = "s"
	b, err := New(Config{Topics: []TopicSetup{{TopicConfig{Name: "t"}, []SubscriptionSetup{{cfg, rules}}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.Default()
}

func sqlRule(name, condition, action string) RuleConfig {
	return RuleConfig{Name: name, Filter: Filter{SQL: &SQLFilter{Expression: condition}}, Action: Action{SQL: action}}
}

func publish(t testing.TB, n *Namespace, ms ...*sdk.Message) {
	t.Helper()
	e, err := n.Entity("t")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if err := e.Send(encode(t, m)); err != nil {
			t.Fatal(err)
		}
	}
}

// arrived is what waits in subscription s, as its clients get it, and what is
// dead there.
func arrived(t testing.TB, n *Namespace) (waiting, dead []*sdk.Message) {
	t.Helper()
	e, err := n.Entity("t/subscriptions/s")
	if err != nil {
		t.Fatal(err)
	}
	read := func(q *queue.Queue) (ms []*sdk.Message) {
		for _, v := range seen(q.Peek(nil, 0, 1000)) {
			encoded, err := message.Append(nil, &v, message.Overlay{})
			if err != nil {
				t.Fatal(err)
			}
			m := new(sdk.Message)
			if err := m.UnmarshalBinary(encoded); err != nil {
				t.Fatal(err)
			}
			ms = append(ms, m)
		}
		return ms
	}
	return read(e.Queue()), read(e.Queue().DeadLetterQueue())
}

func TestAnActionKeepsTheTypesOfProperties(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000).UTC()
	n := topicOf(t, SubscriptionConfig{}, sqlRule("r", "1=1", "SET i8 = i8 + 1; SET u8 = u8 + 255; SET i16 = i16 + 1; SET u16 = u16 + 1; SET i32 = i32 + 1;"+
		"SET u32 = u32 + 1; SET u64 = u64 + 1; SET f32 = f32 * 2; SET f64 = 1; SET at = '2023-11-14T22:13:21Z'; SET id = newid(); SET gone = NULL;"+
		"SET made = at - at; SET b = 'true'; SET huge = huge; SET neg = -u8; SET copy = f32; SET bytes = bin; SET same = property('i16')"))
	publish(t, n, &sdk.Message{Data: [][]byte{nil}, ApplicationProperties: map[string]any{
		"i8": int8(1), "u8": uint8(1), "i16": int16(1), "u16": uint16(1), "i32": int32(1), "u32": uint32(1), "u64": uint64(1),
		"f32": float32(1.5), "f64": 2.5, "at": at, "id": sdk.UUID{1}, "gone": "x", "b": false, "huge": uint64(1 << 63),
		"bin": []byte("x"),
	}})
	got, _ := arrived(t, n)
	properties := got[0].ApplicationProperties
	if id, is := properties["id"].(sdk.UUID); !is || id == (sdk.UUID{1}) {
		t.Errorf("id = %v, want another", properties["id"])
	}
	if made := fmt.Sprint(properties["made"]); !strings.Contains(made, "timespan") {
		t.Errorf("made = %s, want a time span of .NET", made)
	}
	delete(properties, "id")
	delete(properties, "made")
	want := map[string]any{
		"i8": int8(2), "u8": int64(256), "i16": int16(2), "u16": uint16(2), "i32": int32(2), "u32": uint32(2), "u64": uint64(2),
		"f32": float32(3), "f64": 1.0, "at": at.Add(time.Second), "gone": nil, "b": true, "huge": uint64(1 << 63), "neg": int64(-256),
		"RuleName": "r", "copy": float32(3), "bytes": []byte("x"), "bin": []byte("x"), "same": int16(2),
	}
	if diff := cmp.Diff(want, properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestAnActionSeesWhatItHasDone(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("r", "color = 'red'", "SET A = 1; SET a = a + 1; REMOVE Color; SET was = color; SET color = 'x'; REMOVE a;"+
		"SET b = 2; SET sys.Label = 'l'; SET c = sys.Label; REMOVE sys.MessageId; SET RuleName = 'mine'"))
	publish(t, n, &sdk.Message{
		Data: [][]byte{nil}, Properties: &sdk.MessageProperties{MessageID: "m", Subject: new("s")}, ApplicationProperties: map[string]any{"COLOR": "red", "d": "d"},
	})
	got, _ := arrived(t, n)
	want := map[string]any{"was": nil, "color": "x", "b": int64(2), "c": "l", "d": "d", "RuleName": "mine"}
	if diff := cmp.Diff(want, got[0].ApplicationProperties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	if id := got[0].Properties.MessageID; id == "m" || id == nil {
		t.Errorf("message-id %v, want one that the broker made", id)
	}
}

func TestAnActionSetsSystemProperties(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("r", "1=1", "SET sys.SessionId = 's1'; SET sys.PartitionKey = 's1'; SET sys.ContentType = 'text/x'; "+
		"SET sys.ScheduledEnqueueTimeUtc = '2020-01-01T00:00:00Z'; SET sys.TimeToLive = '1.00:00:00'; SET sys.ReplyTo = 5"))
	publish(t, n, sdk.NewMessage([]byte("x"))) // without a properties section
	got, _ := arrived(t, n)
	p := got[0].Properties
	if *p.GroupID != "s1" || *p.ContentType != "text/x" || *p.ReplyTo != "5" || got[0].Header.TTL != 24*time.Hour {
		t.Errorf("properties %+v, time to live %v", p, got[0].Header.TTL)
	}
	at, _ := got[0].Annotations[message.AnnScheduledEnqueueTime].(time.Time)
	if got[0].Annotations[message.AnnPartitionKey] != "s1" || at.Year() != 2020 {
		t.Errorf("annotations %v", got[0].Annotations)
	}
}

func TestCopiesShareTheBytesOfTheSender(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("plain", "1=1", ""), sqlRule("set", "1=1", "SET a = 1"), sqlRule("remove", "1=1", "REMOVE b"))
	if _, err := n.CreateSubscription("t", SubscriptionConfig{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	publish(t, n, &sdk.Message{Data: [][]byte{[]byte("x")}, ApplicationProperties: map[string]any{"b": 1}})
	var bodies [][]byte
	for _, name := range []string{"s", "other"} {
		e, err := n.Entity("t/Subscriptions/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range seen(e.Queue().Peek(nil, 0, 10)) {
			bodies = append(bodies, v.Body)
		}
	}
	if len(bodies) != 4 {
		t.Fatalf("%d copies, want 4", len(bodies))
	}
	for i, want := range []bool{true, false, true, true} { // plain, remove, set; and other
		if got := &bodies[i][0] == &bodies[0][0]; got != want {
			t.Errorf("copy %d shares the bytes: %v, want %v", i, got, want)
		}
	}
}

func TestWhatASubscriptionCannotGiveOutIsDead(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{RequiresSession: true},
		sqlRule("plain", "1=1", ""), sqlRule("in", "kind = 'in'", "SET sys.SessionId = 'x'"), sqlRule("out", "kind = 'out'", "REMOVE sys.SessionId"))
	with := func(kind string, session *string) *sdk.Message {
		return &sdk.Message{Data: [][]byte{nil}, Properties: &sdk.MessageProperties{GroupID: session}, ApplicationProperties: map[string]any{"kind": kind}}
	}
	publish(t, n, with("in", nil), with("out", new("y")), with("plain", new("")))
	waiting, dead := arrived(t, n)
	var sessions []string
	for _, m := range waiting {
		sessions = append(sessions, *m.Properties.GroupID)
	}
	if diff := cmp.Diff([]string{"x", "y", ""}, sessions); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	if len(dead) != 2 || dead[0].ApplicationProperties[message.PropDeadLetterReason] != "Session id is null." {
		t.Errorf("dead are %v, want two without a session", dead)
	}
}

func TestPropertiesDoNotOutgrowTheirBounds(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("grows", "1=1", "SET a = a + a + a; SET b = a"))
	publish(t, n, &sdk.Message{Data: [][]byte{nil}, ApplicationProperties: map[string]any{"a": strings.Repeat("x", 20<<10)}})
	waiting, dead := arrived(t, n)
	if len(waiting) != 0 || len(dead) != 1 || dead[0].ApplicationProperties[message.PropDeadLetterReason] != "HeaderSizeExceeded" {
		t.Errorf("%d wait and %v are dead, want one that is for HeaderSizeExceeded", len(waiting), dead)
	}
}

func TestRulesSeeWhatHappenedToAForwardedMessage(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("dead", "DeadLetterReason = 'Why' AND mark = 1 AND color = 'red'", ""),
		sqlRule("changes", "mark = 1", "REMOVE mark; REMOVE DeadLetterReason; SET DeadLetterErrorDescription = 'none'"))
	e, err := n.Entity("t")
	if err != nil {
		t.Fatal(err)
	}
	m, refusal := message.Read(encode(t, &sdk.Message{Data: [][]byte{nil}, ApplicationProperties: map[string]any{"color": "red"}}))
	if refusal != nil {
		t.Fatal(refusal)
	}
	m.DeadLetterReason, m.DeadLetterErrorDescription = "Why", "because"
	m.Properties = []queue.Property{{Key: "mark", Value: int32(1)}}
	if err := e.send(false, m); err != nil {
		t.Fatal(err)
	}
	waiting, _ := arrived(t, n)
	var got []map[string]any
	for _, m := range waiting {
		got = append(got, m.ApplicationProperties)
	}
	want := []map[string]any{
		{"color": "red", "DeadLetterErrorDescription": "none", "RuleName": "changes"},
		{"color": "red", "mark": int32(1), "DeadLetterReason": "Why", "DeadLetterErrorDescription": "because"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestRulesAndSubscriptionsChangeWhileMessagesCome(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{})
	const each = 300
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range each {
				publish(t, n, &sdk.Message{Data: [][]byte{nil}, ApplicationProperties: map[string]any{"a": "b"}})
			}
		})
	}
	wg.Go(func() {
		for i := range each {
			name := fmt.Sprint("s", i)
			if _, err := n.CreateSubscription("t", SubscriptionConfig{Name: name}); err != nil {
				t.Error(err)
			}
			if err := n.DeleteSubscription("t", name); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for i := range each {
			rule := sqlRule(fmt.Sprint("r", i), "a = 'c'", "SET a = 1")
			if _, err := n.CreateRule("t", "s", rule); err != nil {
				t.Error(err)
			}
			if _, err := n.UpdateTopic(TopicConfig{Name: "t"}); err != nil {
				t.Error(err)
			}
			if err := n.DeleteRule("t", "s", rule.Name); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if got, err := n.SubscriptionInfo("t", "s"); err != nil || got.Counts.Active != 2*each {
		t.Errorf("%d messages arrived, %v; want %d", got.Counts.Active, err, 2*each)
	}
	if got, err := n.TopicInfo("t"); err != nil || got.Counts.Active != 0 || got.Subscriptions != 1 {
		t.Errorf("the topic holds %d messages and %d subscriptions, %v; want 0 and 1", got.Counts.Active, got.Subscriptions, err)
	}
}

// FuzzDistribute: whatever a sender may store, rules may look at and change, and
// every receiver can have the outcome.
func FuzzDistribute(f *testing.F) {
	f.Add(encode(f, &sdk.Message{
		Header:                &sdk.MessageHeader{TTL: time.Minute},
		Annotations:           sdk.Annotations{message.AnnPartitionKey: "p", "x": "y"},
		Properties:            &sdk.MessageProperties{MessageID: "id", GroupID: new("s"), CorrelationID: uint64(5), ContentType: new("x")},
		ApplicationProperties: map[string]any{"a": "b", "n": int32(1), "d": 1.5, "t": true, "u": sdk.UUID{1}, "nil": nil},
		Value:                 "v",
	}))
	n := topicOf(f, SubscriptionConfig{},
		sqlRule("looks", "a LIKE '%_b' OR n + 1 > 5 OR d * 2 = 3 OR sys.CorrelationId = '5' OR sys.PartitionKey = 'p' OR sys.TimeToLive > t", ""),
		sqlRule("sets", "1=1", "SET a = a + 'x'; SET n = n + 1; SET t = NULL; SET new = newid()"),
		sqlRule("removes", "1=1", "REMOVE a; REMOVE n; REMOVE sys.MessageId; REMOVE sys.CorrelationId; REMOVE sys.ScheduledEnqueueTimeUtc; REMOVE sys.PartitionKey"),
		sqlRule("writes", "1=1", "SET sys.Label = 'é'; SET sys.ContentType = 'é'; SET sys.TimeToLive = '00:00:01'; SET sys.SessionId = sys.MessageId"))
	topic, _ := n.Entity("t")
	s, _ := n.Entity("t/Subscriptions/s")
	f.Fuzz(func(t *testing.T, encoded []byte) {
		m, refusal := message.Read(encoded)
		if refusal != nil {
			return
		}
		m.ScheduledEnqueueTime = time.Time{}
		if err := topic.send(false, m); err != nil {
			t.Fatal(err)
		}
		views := append(seen(s.Queue().Peek(nil, 0, 100)), seen(s.Queue().DeadLetterQueue().Peek(nil, 0, 100))...)
		if len(views) < 3 {
			t.Fatalf("%d copies, want one of each rule that matches", len(views))
		}
		for _, v := range views {
			out, err := message.Append(nil, &v, message.Overlay{})
			if err != nil {
				t.Fatalf("distributed, but cannot be delivered: %v", err)
			}
			if _, refusal := message.Read(out); refusal != nil {
				t.Fatalf("distributed as %x, which is refused: %v", out, refusal)
			}
		}
		for _, q := range []*queue.Queue{s.Queue(), s.Queue().DeadLetterQueue()} {
			if _, err := q.DeleteBatch(100, time.Now().Add(time.Hour), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// seen is the messages of a peek that has to succeed.
func seen(views []queue.View, err error) []queue.View {
	if err != nil {
		panic(err)
	}
	return views
}
