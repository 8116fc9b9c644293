// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"maps"
	"slices"
	"testing"
)

func TestOneProcessNotifiesOfAnEvent(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().Notified(), connect().Notified()
		begin := func(who *Notified, event string, wantMine, wantNotified bool) {
			t.Helper()
			mine, notified, err := who.Begin(ctx, event)
			if err != nil || mine != wantMine || notified != wantNotified {
				t.Errorf("Begin(%s) = mine %v, notified %v, %v; want %v, %v", event, mine, notified, err, wantMine, wantNotified)
			}
		}
		begin(a, "one", true, false)
		begin(a, "one", true, false) // its answer may have been lost
		begin(b, "one", false, false)
		begin(b, "two", true, false)
		must(t, a.End(ctx, "one", true))
		begin(b, "one", false, true)
		must(t, b.End(ctx, "two", false))
		begin(a, "two", true, false)
		must(t, b.End(ctx, "two", false)) // late: it is another's by now
		begin(b, "two", false, false)
	})
}

func TestOneProcessSendsTheNotificationsOfAGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().Groups(), connect().Groups()
		claim := func(p *Groups, wantMine bool, wantNote string, want ...string) {
			t.Helper()
			mine, parts, note, err := p.Claim(ctx, "group")
			if got := slices.Sorted(maps.Keys(parts)); err != nil || mine != wantMine || note != wantNote || !slices.Equal(got, want) {
				t.Errorf("Claim = %v, %v, %q, %v; want %v, %v, %q", mine, got, note, err, wantMine, want, wantNote)
			}
		}
		must(t, a.Add(ctx, "group", "a1", []byte("x")))
		must(t, b.Add(ctx, "group", "b1", []byte("y")))
		claim(a, true, "", "a1", "b1")
		must(t, b.Add(ctx, "group", "b2", []byte("z")))
		claim(b, false, "")
		must(t, b.Release(ctx, "group", "not his"))
		claim(b, false, "")
		must(t, a.Release(ctx, "group", "noted"))
		claim(b, true, "noted", "a1", "b1", "b2")
		must(t, b.Release(ctx, "group", "noted again"))
		claim(a, true, "noted again", "a1", "b1", "b2")
	})
}
