// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/config"
	"overdue/internal/operator/dlq"
)

var orders = dlq.Place{Entity: "orders"}

// namespaceWithLetters serves a namespace whose queue orders has the dead letters m-1 to m-n, and returns
// a configuration for it. The network is real: the commands make clients of their own.
func namespaceWithLetters(t *testing.T, n int) (*config.Config, *queue.Queue) {
	t.Helper()
	b, err := broker.New(broker.Config{
		Expiry: queue.Eager,
		Queues: []broker.QueueConfig{
			{Name: "overdue-monitor"}, {Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "again"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Config{Broker: b})
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		for _, err := range []error{server.Close(), b.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := <-done; !errors.Is(err, httpapi.ErrServerClosed) {
			t.Errorf("Serve = %v", err)
		}
	})
	c, err := config.Load("", func(string) string { return "" }, map[string]string{
		"namespace": config.ConnectionString(ln.Addr().String(), config.AnyKeyName, config.AnyKey),
	})
	if err != nil {
		t.Fatal(err)
	}
	q, _ := b.Queue("orders")
	if n == 0 {
		return c, q
	}
	o := SendOptions{Count: n, MessageID: "m", Body: "one coffee", TTL: 10 * time.Millisecond, Properties: []string{"kind=drink"}}
	template, err := o.Message(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if err := Send(t.Context(), c, "orders", template, o, &out, &errs); err != nil {
		t.Fatalf("Send: %v\n%s", err, &errs)
	}
	if want := fmt.Sprintf("sent %d messages to orders, m-1 to m-%d\n", n, n); out.String() != want {
		t.Errorf("Send printed %q, want %q", &out, want)
	}
	for deadline := time.Now().Add(20 * time.Second); q.Counts().DeadLetter < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d dead letters, want %d", q.Counts().DeadLetter, n)
		}
	}
	return c, q
}

func TestListCountsAndShowsWhatIsMeant(t *testing.T) {
	c, _ := namespaceWithLetters(t, 3)
	var out bytes.Buffer
	if err := List(t.Context(), c, orders, &LettersOptions{}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NUMBER", "m-1", "m-3", "TTLExpiredException", "3 of the 3 dead letters of orders.\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("List printed\n%swant %q in it", &out, want)
		}
	}
	out.Reset()
	narrow := LettersOptions{JSON: true, Filter: dlq.Filter{MessageIDs: []string{"m-2"}}}
	if err := List(t.Context(), c, orders, &narrow, &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		LookedAt, Meant int
		DeadLetters     []struct{ MessageID, DeadLetterReason string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.LookedAt != 3 || got.Meant != 1 || len(got.DeadLetters) != 1 || got.DeadLetters[0].MessageID != "m-2" {
		t.Errorf("List of m-2 = %+v", got)
	}
	out.Reset()
	if err := Show(t.Context(), c, orders, &narrow, &out); err != nil || !strings.Contains(out.String(), `"body": "one coffee"`) {
		t.Errorf("Show of m-2 = %v\n%s", err, &out)
	}
	out.Reset()
	if err := Show(t.Context(), c, orders, &LettersOptions{Limit: 1}, &out); err != nil || !strings.Contains(out.String(), "messageId: m-1\n") || !strings.Contains(out.String(), "  kind: drink\n") {
		t.Errorf("Show of the first = %v\n%s", err, &out)
	}
	none := LettersOptions{Filter: dlq.Filter{Reason: "Other"}}
	if err := Show(t.Context(), c, orders, &none, &out); err == nil || err.Error() != "none of the 3 dead letters of orders is meant" {
		t.Errorf("Show of none = %v", err)
	}
}

func TestResubmitSendsCopiesOnceAndTakesOff(t *testing.T) {
	c, q := namespaceWithLetters(t, 3)
	journal := filepath.Join(t.TempDir(), "journal.db")
	resubmit := func(change func(*ResubmitOptions)) (string, error) {
		t.Helper()
		o := ResubmitOptions{LettersOptions: LettersOptions{Yes: true, All: true}, Journal: journal}
		change(&o)
		if err := o.Check(orders); err != nil {
			return "", err
		}
		var out, errs bytes.Buffer
		err := Resubmit(context.Background(), c, orders, &o, &out, &errs)
		return out.String(), err
	}
	if out, err := resubmit(func(o *ResubmitOptions) { o.Dry = true }); err != nil || !strings.Contains(out, "Without --dry-run this would resubmit 3 to orders.") || q.Counts().DeadLetter != 3 {
		t.Errorf("a dry run = %v\n%s%d dead letters are left, want 3", err, out, q.Counts().DeadLetter)
	}
	if out, err := resubmit(func(o *ResubmitOptions) { o.Yes, o.In = false, strings.NewReader("no\n") }); err != nil || !strings.Contains(out, "Nothing was changed.") {
		t.Errorf("answered with no = %v\n%s", err, out)
	}
	if out, err := resubmit(func(o *ResubmitOptions) { o.To = "again" }); err != nil || !strings.Contains(out, "3 resubmitted to again.") {
		t.Errorf("resubmission = %v\n%s", err, out)
	}
	if n := q.Counts().DeadLetter; n != 0 {
		t.Errorf("%d dead letters are left, want none", n)
	}
	if out, err := resubmit(func(o *ResubmitOptions) { o.To = "again" }); err != nil || !strings.Contains(out, "orders has no dead letters.") {
		t.Errorf("once more = %v\n%s", err, out)
	}
	if _, err := resubmit(func(o *ResubmitOptions) { o.To = "nowhere" }); err == nil || !strings.Contains(err.Error(), `there is no queue or topic "nowhere"`) {
		t.Errorf("to a queue that does not exist = %v", err)
	}
	if _, err := resubmit(func(o *ResubmitOptions) { o.NewIDs, o.KeepIDs = true, true }); err == nil {
		t.Error("--new-ids with --keep-ids is taken")
	}
}

func TestPurgeTakesOffWhatIsMeant(t *testing.T) {
	c, q := namespaceWithLetters(t, 3)
	var out bytes.Buffer
	two := LettersOptions{Yes: true, Filter: dlq.Filter{MessageIDs: []string{"m-1", "m-3"}}}
	if err := Purge(t.Context(), c, orders, &two, &out); err != nil || !strings.Contains(out.String(), "2 purged.\n") {
		t.Errorf("Purge = %v\n%s", err, &out)
	}
	if n := q.Counts().DeadLetter; n != 1 {
		t.Errorf("%d dead letters are left, want 1", n)
	}
	out.Reset()
	all := LettersOptions{Yes: true, All: true, JSON: true}
	if err := Purge(t.Context(), c, orders, &all, &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Purged           int
		Locked, NotThere []int64
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Purged != 1 || len(got.Locked)+len(got.NotThere) != 0 {
		t.Errorf("Purge as JSON = %s, %v; want 1 purged", &out, err)
	}
}

func TestSendToAQueueThatDoesNotExistSaysSo(t *testing.T) {
	c, _ := namespaceWithLetters(t, 0)
	o := SendOptions{Count: 1, Body: "x"}
	template, err := o.Message(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = Send(t.Context(), c, "nowhere", template, o, &out, &errs)
	if err == nil || !strings.Contains(err.Error(), `there is no queue or topic "nowhere"`) {
		t.Errorf("Send = %v\n%s%s", err, &out, &errs)
	}
}
