// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goldenSecond is the wire form of second deadlines, as it is documented.
const goldenSecond = `{"version":3,"kind":"each","entity":"orders","references":[` +
	`{"messageId":"m-1","sent":"2026-01-31T12:00:00Z","deadline":"2026-01-31T12:05:00Z","stated":"complete","incomplete":true,"withinMs":300000},` +
	`{"messageId":"m-2","sent":"2026-01-31T12:00:00Z","deadline":"2026-01-31T12:00:30Z","stated":"ttl","withinMs":30000,"completeWithinMs":90000,"warnedMs":5000}]}`

func TestSecondDeadlinesHaveTheirDocumentedWireForm(t *testing.T) {
	want := Companion{Entity: "orders", References: []Reference{
		{MessageID: "m-1", Sent: noon, Deadline: noon.Add(5 * time.Minute), Within: 5 * time.Minute, Stated: StatedComplete, Incomplete: true},
		{MessageID: "m-2", Sent: noon, Deadline: noon.Add(30 * time.Second), Within: 30 * time.Second, Stated: "ttl", CompleteWithin: 90 * time.Second, Warned: 5 * time.Second},
	}}
	body, _, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenSecond, string(body)); diff != "" {
		t.Errorf("wire form (-want +got):\n%s", diff)
	}
	got, err := ParseCompanion([]byte(goldenSecond))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseCompanion (-want +got):\n%s", diff)
	}
}

func TestACompanionIsDueAheadOfTheDeadline(t *testing.T) {
	early := refs(time.Minute, time.Minute)
	early[0].Ahead = 30 * time.Second
	groups := compose([]*ticket{ticketFor(Companion{Entity: "orders", References: early})})
	if len(groups) != 2 || !groups[0].c.Due.Equal(slotDue(noon.Add(30*time.Second))) || !groups[1].c.Due.Equal(slotDue(noon.Add(time.Minute))) {
		t.Errorf("compose makes %d companions, want one due 30s ahead of the deadline and one shortly before it", len(groups))
	}
}

func TestStatedCompletion(t *testing.T) {
	for _, c := range []struct {
		stated any
		want   time.Duration
		says   string
	}{
		{nil, 0, ""},
		{"90s", 90 * time.Second, ""},
		{"PT5M", 5 * time.Minute, ""},
		{"soon", 0, `overdue-complete-within is "soon"`},
		{"0s", 0, "more than 0"},
		{int64(3), 0, "a value of type int64"},
	} {
		got, err := StatedCompletion(func(name string) any {
			if name != "overdue-complete-within" {
				t.Errorf("asks for %s", name)
			}
			return c.stated
		})
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v is %v, %v; want %v and an error that says %q", c.stated, got, err, c.want, c.says)
		}
	}
}
