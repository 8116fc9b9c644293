// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"overdue/internal/broker/quirk"

	"github.com/google/go-cmp/cmp"
)

// The quirk changes where a released message goes, and nothing of what is abandoned later.
func TestAReleasedMessageGoesLastUntilItIsReceived(t *testing.T) {
	q := New(Config{Quirks: quirk.ReleaseLast})
	defer q.Close()
	c := q.NewConsumer(PeekLock)
	send(t, q, text("a"), text("b"))
	must(t, q.Release(receive(c, 1)[0].LockToken))
	ds := receive(c, 2)
	if diff := cmp.Diff([]string{"b", "a"}, bodies(ds)); diff != "" {
		t.Errorf("after the release: -want +got:\n%s", diff)
	}
	for _, d := range ds {
		must(t, q.Abandon(d.LockToken))
	}
	if diff := cmp.Diff([]string{"a", "b"}, bodies(receive(c, 2))); diff != "" {
		t.Errorf("once abandoned: -want +got:\n%s", diff)
	}
}
