// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"path/filepath"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
)

// A batch that is refused may be in the target all the same: a proxy says server-busy where only
// the companion failed. A batch with such a condition stays open, and the next run finds its
// copies.
func TestABatchIsOpenUnlessItWasRefusedForGood(t *testing.T) {
	for name, c := range map[string]struct {
		refusal *amqp.Error
		open    bool
	}{
		"busy":         {broker.ServerBusy(), true},
		"timeout":      {amqp.Errorf("com.microsoft:timeout", "The operation did not complete."), true},
		"internal":     {amqp.Errorf(amqp.ErrCondInternalError, "The service was unable to process the request."), true},
		"full":         {broker.EntityFull(), false},
		"no right":     {amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "Unauthorized access."), false},
		"not allowed":  {amqp.Errorf(amqp.ErrCondNotAllowed, "Not allowed."), false},
		"not found":    {amqp.Errorf(amqp.ErrCondNotFound, "No such entity."), false},
		"disabled":     {amqp.Errorf("com.microsoft:entity-disabled", "Disabled."), false},
		"bad argument": {amqp.Errorf("com.microsoft:argument-error", "Bad."), false},
		"too large":    {amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "Too large."), false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.dead(3)
				path := filepath.Join(s.TempDir(), "journal.db")
				heal := s.ns.Broker.Default().Inject(broker.Fault{Entity: "again", Operation: broker.OnSend, Error: c.refusal})
				if o, err := s.resubmit(path, nil); err == nil || o.Copied != 0 {
					s.Fatalf("a run whose batch is refused: %+v, %v, want an error and no copy", o, err)
				}
				heal()
				journal, err := OpenJournal(path)
				if err != nil {
					s.Fatal(err)
				}
				left, err := journal.entries()
				if err != nil {
					s.Fatal(err)
				}
				if err := journal.Close(); err != nil {
					s.Fatal(err)
				}
				if want := map[bool]int{true: 3}[c.open]; len(left) != want {
					s.Errorf("%d dead letters are noted as sent, perhaps, want %d", len(left), want)
				}
				time.Sleep(2 * time.Minute) // the locks of the run lapse
				o, err := s.resubmit(path, nil)
				if err != nil || (len(o.Unsure) == 3) != c.open || (o.Copied == 3) == c.open {
					s.Errorf("the next run: %+v, %v, want to be unsure of all = %v, and else to copy all", o, err, c.open)
				}
			})
		})
	}
}
