// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/monitor/adopt"
)

func TestTheProxyKnowsSecondDeadlinesAndReminders(t *testing.T) {
	c, err := configured(t, "broker: {autoCreate: true}\nmonitor: {entities: [{queue: q, completeWithin: 10m, warnBefore: [1m30s, PT5S]}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := Adoptions(c); len(got) != 0 {
		t.Errorf("adopts %v, want nothing", got)
	}
	k := New(c, Nowhere{}, nil, nil)
	defer k.store.Close()
	px := k.current.Load().proxied("q", k.current.Load().assumed[0], nil)
	want := []time.Duration{90 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, px.WarnBefore); diff != "" || px.CompleteWithin != 10*time.Minute {
		t.Errorf("completeWithin %v, warnBefore (-want +got):\n%s", px.CompleteWithin, diff)
	}
}

func TestAdoptions(t *testing.T) {
	c, err := configured(t, "broker: {autoCreate: true, topics: [{name: t}]}\nmonitor: {entities: [{queue: q, adopt: true}, {queue: r}, {topic: t, adopt: true, adoptEvery: PT1M}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []adopt.Entity{{Entity: "q", Every: 30 * time.Second}, {Entity: "t", Every: time.Minute}}
	if diff := cmp.Diff(want, Adoptions(c)); diff != "" {
		t.Errorf("adoptions (-want +got):\n%s", diff)
	}
}
