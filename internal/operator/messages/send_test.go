// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/failure"
	"overdue/internal/testing/brokertest"
)

// An error of the SDK about a send becomes a sentence, without the part that it prints for
// programs.
func TestFailuresOfSendsAreSentences(t *testing.T) {
	ns := brokertest.New(t, func(c *broker.Config) { c.AutoCreate = false })
	sender, err := ns.Client(t).NewSender("nowhere-at-all", nil)
	if err != nil {
		t.Fatal(err)
	}
	missing := sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{missing, `there is no queue or topic "orders"; create it, or correct the name`},
		{azservicebus.ErrMessageTooLarge, "the message is too large for orders; its tier bounds it, and its own limit if it has one"},
		{errors.New("x: *Error{Condition: amqp:not-allowed, Description: The deadline has passed., Info: map[]}"), "send to orders: The deadline has passed"},
		{errors.New("reset by peer"), "send to orders: reset by peer"},
	} {
		if got := failure.Sending("orders", c.err).Error(); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestSendSaysWhatWasAccepted(t *testing.T) {
	setup(t, 0, func(t *testing.T, s *scene) {
		if got, want := s.send("again", SendOptions{Count: 1, MessageID: "one", Body: "x"}), "sent one to again\n"; got != want {
			t.Errorf("Send printed %q, want %q", got, want)
		}
		// More than one batch of a megabyte.
		var got sendResult
		o := SendOptions{Count: 5, Body: strings.Repeat("x", 100_000), JSON: true}
		if err := json.Unmarshal([]byte(s.send("again", o)), &got); err != nil || got.Sent != 5 || len(got.MessageIDs) != 5 || got.MessageIDs[0] == got.MessageIDs[1] {
			t.Errorf("Send as JSON = %+v, %v; want five messages with ids", got, err)
		}
		if again, _ := s.ns.Broker.Queue("again"); again.Counts().Active != 6 {
			t.Errorf("the queue has %d messages, want 6", again.Counts().Active)
		}
		for _, count := range []int{1, 2} {
			err := Send(s.Context(), s.conn, "nowhere", &azservicebus.Message{}, SendOptions{Count: count}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), `there is no queue or topic "nowhere"`) {
				t.Errorf("Send to a queue that does not exist = %v", err)
			}
		}
	})
}

func TestAMessageIsMadeOfItsOptions(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := SendOptions{
		Count: 1, BodyFile: file, MessageID: "m", SessionID: "s", Subject: "order", At: "90s", Deadline: "2026-03-04T06:00:00+01:00",
		Within: time.Minute, CompleteWithin: time.Hour, TTL: time.Second, Properties: []string{"cups=2", "hot=true", "kind=drink"},
	}
	got, err := o.Message(now)
	if err != nil {
		t.Fatal(err)
	}
	want := &azservicebus.Message{
		Body: []byte("from a file"), MessageID: to.Ptr("m"), SessionID: to.Ptr("s"), Subject: to.Ptr("order"), TimeToLive: to.Ptr(time.Second),
		ScheduledEnqueueTime: to.Ptr(now.Add(90 * time.Second)),
		ApplicationProperties: map[string]any{
			"cups": int64(2), "hot": true, "kind": "drink", "overdue-deadline": time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC),
			"overdue-within": "1m0s", "overdue-complete-within": "1h0m0s",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	in := SendOptions{Count: 1, BodyFile: "-", In: strings.NewReader("from standard input"), Within: time.Minute}
	if got, err := in.Message(now); err != nil || string(got.Body) != "from standard input" || got.ApplicationProperties["overdue-within"] != "1m0s" {
		t.Errorf("message of standard input = %+v, %v", got, err)
	}
	for want, o := range map[string]SendOptions{
		"--body and --body-file are both given": {Count: 1, Body: "x", BodyFile: file},
		"--body-file: open ":                    {Count: 1, BodyFile: file + "-none"},
		"--at: \"later\" is neither a time":     {Count: 1, At: "later"},
		"--deadline is \"1h\"; write it as":     {Count: 1, Deadline: "1h"},
		"--property is \"x\"; write name=value": {Count: 1, Properties: []string{"x"}},
		"--body-file: gone":                     {Count: 1, BodyFile: "-", In: failing{}},
	} {
		if _, err := o.Message(now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Message = %v, want %q", err, want)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("gone") }
