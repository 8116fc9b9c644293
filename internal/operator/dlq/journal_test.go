// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func openJournal(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.db.Close() }) // most tests have closed it
	return j
}

// A journal that this version cannot read may be a record of copies that another version has sent:
// it is not skipped, and not removed.
func TestAJournalOfAnotherVersionIsRefused(t *testing.T) {
	for name, pair := range map[string][2][]byte{
		"a short number": {{1}, {byte(sent), 0, 0, 0, 0, 0, 0, 0, 1}},
		"a short entry":  {key(1), {byte(sent)}},
		"another step":   {key(1), {3, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		path := filepath.Join(t.TempDir(), "journal.db")
		j := openJournal(t, path)
		if err := j.update(func(b *bbolt.Bucket) error { return b.Put(pair[0], pair[1]) }); err != nil {
			t.Fatal(err)
		}
		if all, err := j.entries(); err == nil {
			t.Errorf("%s: entries = %v, want an error", name, all)
		}
		if err := j.Close(); err == nil {
			t.Errorf("%s: Close = nil, want an error", name)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: the journal has not been left there: %v", name, err)
		}
	}
}

// Nothing may leave that is not noted.
func TestAJournalThatCannotWriteSaysSo(t *testing.T) {
	j := openJournal(t, filepath.Join(t.TempDir(), "journal.db"))
	if err := j.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.begin([]int64{1}); !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		t.Errorf("begin = %v, want that the journal is not open", err)
	}
	if err := j.sent([]int64{1}, 1); !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		t.Errorf("sent = %v, want that the journal is not open", err)
	}
	if err := j.forget([]int64{1}); !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		t.Errorf("forget = %v, want that the journal is not open", err)
	}
}

// A run that ends forgets all of a journal of many pages.
func TestAJournalOfManyPagesIsForgottenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j := openJournal(t, path)
	numbers := make([]int64, 5_000)
	for i := range numbers {
		numbers[i] = int64(i + 1)
	}
	if _, err := j.begin(numbers); err != nil {
		t.Fatal(err)
	}
	if err := j.forget(numbers); err != nil {
		t.Fatal(err)
	}
	if left, err := j.entries(); err != nil || len(left) != 0 {
		t.Errorf("%d entries are left, %v; want none", len(left), err)
	}
	if _, err := j.begin(numbers[:1]); err != nil {
		t.Error(err)
	}
	if left, err := j.entries(); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left, %v; want the new one", len(left), err)
	}
}

// Nor does a run rely on a journal that cannot be written.
func TestAResubmissionEndsWhenItsJournalCannotBeWritten(t *testing.T) {
	run := func(s *scene, r *Resubmission) error { _, err := r.Run(s.Context(), nil); return err }
	check := func(s *scene, r *Resubmission) error { _, err := r.reconcile(s.Context()); return err }
	for name, c := range map[string]struct {
		e   entry
		act func(*scene, *Resubmission) error
	}{"a copy that was sent, and is gone": {entry{sent, 1}, run}, "a copy that is found": {entry{sending, 1}, check}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.putCopy(2)
				path := filepath.Join(s.TempDir(), "journal.db")
				j := openJournal(s.T, path)
				if err := j.update(func(b *bbolt.Bucket) error { return put(b, []int64{2}, c.e) }); err != nil {
					s.Fatal(err)
				}
				if err := j.db.Close(); err != nil {
					s.Fatal(err)
				}
				db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
				if err != nil {
					s.Fatal(err)
				}
				s.Cleanup(func() { _ = db.Close() }) // there is nothing to be lost
				r := &Resubmission{Links: s.links(), Place: orders, To: "again", IsQueue: true, Journal: &Journal{db, path}, Hold: hold}
				if err := c.act(s, r); !errors.Is(err, bbolterrors.ErrDatabaseReadOnly) {
					s.Errorf("resubmission: %v, want that the journal cannot be written", err)
				}
			})
		})
	}
}

// putCopy sends a copy of the dead letter of that number to the target, as a run before has.
func (s *scene) putCopy(number int64) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender("again", nil)
	if err != nil {
		s.Fatal(err)
	}
	found := &azservicebus.Message{ApplicationProperties: map[string]any{PropertyFrom: orders.String(), PropertyNumber: number}}
	if err := sender.SendMessage(s.Context(), found, nil); err != nil {
		s.Fatal(err)
	}
}

// When a dead letter whose copy was sent has left the queue, the journal forgets the copy.
func TestWhatWasSentAndIsGoneIsForgotten(t *testing.T) {
	play(t, func(s *scene) {
		path := filepath.Join(s.TempDir(), "journal.db")
		j := openJournal(s.T, path)
		if err := j.sent([]int64{7}, 1); err != nil {
			s.Fatal(err)
		}
		if err := j.Close(); err != nil {
			s.Fatal(err)
		}
		o, err := s.resubmit(path, nil)
		if err != nil || len(o.Gone) != 1 || o.Gone[0] != 7 {
			s.Errorf("resubmission: %+v, %v, want 7 to be gone", o, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			s.Errorf("the journal of nothing: %v, want none", err)
		}
	})
}

// A queue that is made again has the same numbers. Copies of what was in the former one prove
// nothing, or dead letters would be taken off that have no copy.
func TestACopyThatIsOlderThanItsDeadLetterIsNone(t *testing.T) {
	play(t, func(s *scene) {
		s.putCopy(2)
		time.Sleep(time.Second)
		s.dead(3)
		j := openJournal(s.T, filepath.Join(s.TempDir(), "journal.db"))
		if _, err := j.begin([]int64{1, 2}); err != nil {
			s.Fatal(err)
		}
		r := &Resubmission{Links: s.links(), Place: orders, To: "again", IsQueue: true, Journal: j}
		all, err := r.reconcile(s.Context())
		if err != nil || all[1].step != sending || all[2].step != sending {
			s.Errorf("the journal has %v, %v; want both as being sent", all, err)
		}
	})
}

// A copy that has been found is noted at once: it may have been received when somebody looks again.
func TestWhatIsFoundInTheTargetIsNotedAsSent(t *testing.T) {
	play(t, func(s *scene) {
		s.putCopy(2)
		j := openJournal(s.T, filepath.Join(s.TempDir(), "journal.db"))
		for _, numbers := range [][]int64{{1, 2}, {3}} {
			if _, err := j.begin(numbers); err != nil {
				s.Fatal(err)
			}
		}
		r := &Resubmission{Links: s.links(), Place: orders, To: "again", IsQueue: true, Journal: j}
		if _, err := r.reconcile(s.Context()); err != nil {
			s.Fatal(err)
		}
		all, err := j.entries()
		if err != nil {
			s.Fatal(err)
		}
		if all[1].step != sent || all[2].step != sent || all[3].step != sending {
			s.Errorf("the journal has %v, want 1 and 2 as sent and 3 as being sent", all)
		}
	})
}
