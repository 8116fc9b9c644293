// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"testing"
	"time"

	"overdue/internal/testing/redistest"
)

// A worker that comes back late renews the items that it still leases and nothing else. An item
// that another worker has got since lapses when that worker's lease does, and a finished item does
// not come back.
func TestRenewalLeavesTheLeasesOfOthersAlone(t *testing.T) {
	m := redistest.InMemory(t)
	ctx := t.Context()
	late, other, third := open(t, "redis://"+m.Addr()).Companions(), open(t, "redis://"+m.Addr()).Companions(), open(t, "redis://"+m.Addr()).Companions()
	must(t, late.Put(ctx, numberedItems(2, noon)))
	late.life = time.Hour
	if got := claimed(t, late, noon, 2); len(got) != 2 {
		t.Fatalf("claimed %v, want both", ids(got))
	}
	late.life = -time.Minute
	must(t, late.Renew(ctx)) // they have lapsed
	had := claimed(t, other, noon, 2)
	if len(had) != 2 {
		t.Fatalf("claimed %v of what has lapsed, want both", ids(had))
	}
	must(t, other.Done(ctx, had[0]))
	other.life = -time.Minute
	must(t, other.Renew(ctx)) // the one that is left has lapsed again
	late.life = time.Hour
	must(t, late.Renew(ctx))
	wantCounts(t, third, 0, 1, 0)
	wantIDs(t, "what another has let lapse", claimed(t, third, noon, 2), had[1].ID)
}
