// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// messagesOf loads a queue, with all that it has beside messages, and their contents.
func messagesOf(t testing.TB, s *Store, id uint32) (all []queue.Change, last int64) {
	t.Helper()
	var records []int64
	last, err := s.Load(id, func(c *queue.Change) error {
		if all = append(all, *c); c.Fate == queue.Added {
			records = append(records, c.Record)
		}
		return nil
	})
	if err = errors.Join(err, s.CheckContents(id)); err != nil {
		t.Fatalf("Load(%d) = %v", id, err)
	}
	at := 0 // messages come first, and Read keeps their order
	err = s.Queue(id).Read(records, func(record int64, c queue.Content) {
		for all[at].Record != record {
			at++
		}
		all[at].MessageID, all[at].Body = c.MessageID, c.Body
	})
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	return all, last
}

// added is the step that brings a message.
func added(record int64, m queue.Stored) *queue.Step {
	m.SequenceNumber = record
	m.ContentSize = len(m.MessageID) + len(m.Body)
	return &queue.Step{Last: record, Changes: []queue.Change{{Fate: queue.Added, Record: record, Stored: m}}}
}

// whole is a message that has everything that a message can have.
func whole() queue.Stored {
	at := time.Date(2026, 11, 29, 12, 0, 0, 123_456_000, time.UTC)
	return queue.Stored{
		Dead:      true,
		Delivered: true,
		View: queue.View{
			Message: queue.Message{
				Body:                       []byte("\x00\x53\x75body"),
				MessageID:                  "id",
				SessionID:                  "session",
				HasSession:                 true,
				TTL:                        time.Hour + time.Nanosecond,
				ScheduledEnqueueTime:       at.Add(-time.Minute),
				EnqueuedSequenceNumber:     7,
				Activated:                  true,
				Hops:                       2,
				DeadLetterReason:           "reason",
				DeadLetterErrorDescription: "description",
				DeadLetterSource:           "source",
				Properties: []queue.Property{
					{Key: "text", Value: "ä"},
					{Key: "number", Value: int32(-3)},
					{Key: "time", Value: amqp.Timestamp(1234)},
					{Key: "symbol", Value: amqp.Symbol("s")},
					{Key: "null", Value: nil},
					{Key: "map", Value: amqp.Map{{Key: "k", Value: uint64(1)}}},
				},
			},
			SequenceNumber:   3<<48 | 5,
			EnqueuedTime:     at,
			ExpiresAt:        at.Add(time.Hour),
			DeliveryCount:    4,
			State:            queue.Deferred,
			EntityTTL:        true,
			DeadLetteredTime: at.Add(time.Second),
		},
	}
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	full := added(5, whole()).Changes[0]
	plain := added(6, queue.Stored{View: queue.View{Message: queue.Message{Body: []byte("b")}}}).Changes[0]
	changed := queue.Change{Fate: queue.Changed, Record: 6, Stored: plain.Stored}
	changed.DeliveryCount, changed.Dead, changed.DeadLetterReason = 9, true, "spent"
	changed.Body = nil // in memory it may be no more
	gone := queue.Change{Record: 7, Stored: plain.Stored}
	s.Queue(1).Append(&queue.Step{Last: 7, Changes: []queue.Change{full, plain, gone}})
	s.Queue(2).Append(added(1, plain.Stored))
	s.Queue(1).Append(&queue.Step{Changes: []queue.Change{changed, {Fate: queue.Removed, Record: 7}}})
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	// Without Close: as after kill -9.
	s = openOn(t, d.crashed(nil, 0))
	all, last := messagesOf(t, s, 1)
	changed.Fate, changed.Body = queue.Added, plain.Body
	if diff := gocmp.Diff([]queue.Change{full, changed}, all); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if last != 7+reservedNumbers {
		t.Errorf("the last number is %d, want that those which could have been seen after 7 are not used again", last)
	}
	if others, _ := messagesOf(t, s, 2); len(others) != 1 {
		t.Errorf("the other queue has %d messages, want 1", len(others))
	}
	s.Drop(1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestEntitiesComeBackAndTheirNumbersAreNotUsedAgain(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	s.PutEntity(1, []byte("one"))
	s.PutEntity(2, []byte("two"))
	s.PutEntity(3, []byte("three"))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	s.PutEntity(1, []byte("one, changed"))
	s.Drop(3)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	s = openOn(t, d.crashed(nil, 0))
	got := map[uint32]string{}
	highest, err := s.Entities(func(id uint32, description []byte) error { got[id] = string(description); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(map[uint32]string{1: "one, changed", 2: "two"}, got); diff != "" {
		t.Errorf("entities after a restart (-want +got):\n%s", diff)
	}
	if highest != 3 {
		t.Errorf("the highest number is %d, want that of the entity that is gone, 3", highest)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// state is the step that sets the state of a session.
func state(session, text string, at time.Time) *queue.Step {
	c := queue.Change{Fate: queue.StateSet}
	c.SessionID, c.Body = session, []byte(text)
	if text != "" {
		c.EnqueuedTime = at
	}
	return &queue.Step{Changes: []queue.Change{c}}
}

// sent is the step that remembers a message-id, or forgets what is older, when that is empty.
func sent(messageID string, at time.Time) *queue.Step {
	c := queue.Change{Fate: queue.IDSent}
	if messageID == "" {
		c.Fate = queue.IDsExpired
	}
	c.MessageID, c.EnqueuedTime = messageID, at
	return &queue.Step{Changes: []queue.Change{c}}
}

func TestStatesAndMessageIDsComeBackAsTheyWere(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	at := time.Date(2026, 11, 29, 12, 0, 0, 123_456_000, time.UTC)
	q := s.Queue(1)
	q.Append(state("", "of the session without a name", at))
	q.Append(state("a", "first", at))
	q.Append(state("a", "second", at.Add(time.Hour)))
	q.Append(state("b", "state", at))
	q.Append(state("b", "", at))
	q.Append(sent("expired", at.Add(-time.Microsecond)))
	q.Append(sent("before the epoch", time.Unix(-1, 0).UTC()))
	q.Append(sent("later", at.Add(time.Microsecond)))
	q.Append(sent("kept\x00key", at))
	s.Queue(2).Append(sent("of another", at.Add(-time.Hour)))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	q.Append(sent("", at))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	s = openOn(t, d.crashed(nil, 0))
	got, _ := messagesOf(t, s, 1)
	want := []queue.Change{
		state("", "of the session without a name", at).Changes[0],
		state("a", "second", at.Add(time.Hour)).Changes[0],
		sent("kept\x00key", at).Changes[0],
		sent("later", at.Add(time.Microsecond)).Changes[0],
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	s.Drop(1)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, _ := messagesOf(t, s, 1); len(got) > 0 {
		t.Errorf("of a queue that was dropped there is %v", got)
	}
	if got, _ := messagesOf(t, s, 2); len(got) != 1 {
		t.Errorf("of the other queue there is %v, want its message-id", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestQueueThatIsDroppedIsGone(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	s.Queue(1).Append(added(1, whole()))
	s.Queue(2).Append(added(1, whole()))
	s.Drop(1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openOn(t, d)
	if all, last := messagesOf(t, s, 1); len(all) != 0 || last != 0 {
		t.Errorf("of the dropped queue there are %d messages and the number %d", len(all), last)
	}
	if all, last := messagesOf(t, s, 2); len(all) != 1 || last != 1 {
		t.Errorf("the other queue has %d messages and the number %d, want 1 and 1", len(all), last)
	}
}

// Nothing else is written behind the drop, so nothing but time makes the database give space back.
func TestQueueThatIsDroppedGivesItsRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openOn(t, newDisk())
		body, random := whole(), rand.NewChaCha8([32]byte{})
		for record := range int64(100) {
			body.Body = make([]byte, 64<<10)
			_, _ = random.Read(body.Body) // it never fails
			s.Queue(1).Append(added(record+1, body))
		}
		if err := errors.Join(s.Wait(), s.db.Flush()); err != nil {
			t.Fatal(err)
		}
		if tables(t, s) == 0 {
			t.Error("the messages are in no table yet")
		}
		s.Drop(1)
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := tables(t, s); n != 0 {
			t.Errorf("%d tables are left, want none", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// tables returns how many tables the database of s has.
func tables(t *testing.T, s *Store) (n int) {
	t.Helper()
	names, err := s.fs.List(s.fs.PathJoin(s.dir, database))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			n++
		}
	}
	return n
}

func TestDirectoryThatCannotBeOpenedIsLeftAlone(t *testing.T) {
	make := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "overdue")
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.Queue(1).Append(added(1, whole()))
		if err := errors.Join(s.Wait(), s.db.Flush(), s.Close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(t *testing.T, path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, scene := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  error
	}{
		"a later version": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, versionFile), versionText+"2\n")
		}, ErrNewer},
		"a version that cannot be read": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, versionFile), "hello\n")
		}, ErrDamaged},
		"files of something else": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, versionFile)); err != nil {
				t.Fatal(err)
			}
		}, ErrForeign},
		"another process": {func(t *testing.T, dir string) {
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}, ErrLocked},
		"a manifest that is cut": {func(t *testing.T, dir string) {
			found, err := filepath.Glob(filepath.Join(dir, database, "MANIFEST-*"))
			if err != nil || len(found) == 0 {
				t.Fatal("no manifest", err)
			}
			for _, path := range found {
				write(t, path, "")
			}
		}, ErrDamaged},
		"a table that is missing": {func(t *testing.T, dir string) {
			found, err := filepath.Glob(filepath.Join(dir, database, "*.sst"))
			if err != nil || len(found) == 0 {
				t.Fatal("no table", err)
			}
			for _, path := range found {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}, ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			dir := make(t)
			scene.spoil(t, dir)
			s, err := Open(dir)
			if err == nil {
				err = s.Close()
				t.Fatalf("Open succeeds, Close = %v", err)
			}
			if !errors.Is(err, scene.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open = %v, want %v and the directory", err, scene.want)
			}
		})
	}
}

func TestDirectoryIsFreeAfterClose(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutcomeWaitsForTheDisk(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	syncing, proceed := make(chan bool), make(chan bool)
	var synced bool
	d.set(nil, func() error {
		if !synced {
			synced = true
			syncing <- true
			<-proceed
		}
		return nil
	})
	heard := make(chan string, 2)
	s.Queue(1).Append(added(1, whole()))
	s.After(func(err error) { heard <- fmt.Sprint("first ", err) })
	<-syncing
	s.Queue(1).Append(added(2, whole()))
	s.After(func(err error) { heard <- fmt.Sprint("second ", err) })
	if len(heard) > 0 {
		t.Error("an outcome came before the disk had it:", <-heard)
	}
	close(proceed)
	for _, want := range []string{"first <nil>", "second <nil>"} {
		if got := <-heard; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	s.After(func(err error) { heard <- fmt.Sprint("nothing to wait for ", err) })
	if len(heard) != 1 {
		t.Error("an outcome without a change waits")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskIsWaitedForAndLosesNothing(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	d.set(func() error { return fmt.Errorf("write: %w", syscall.ENOSPC) }, nil)
	s.Queue(1).Append(added(1, whole()))
	if err := s.Wait(); !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("Wait on a full disk = %v, want %v", err, queue.ErrNoRoom)
	}
	if err := s.Trouble(); !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("Trouble on a full disk = %v, want %v", err, queue.ErrNoRoom)
	}
	if err := s.Wait(); !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("Wait on a disk that stays full = %v, want %v", err, queue.ErrNoRoom)
	}
	d.set(nil, nil)
	for s.Trouble() != nil {
		time.Sleep(testInterval)
	}
	s.Queue(1).Append(added(2, whole()))
	if err := s.Wait(); err != nil {
		t.Errorf("Wait when there is room = %v", err)
	}
	s = openOn(t, d.crashed(nil, 0))
	if all, _ := messagesOf(t, s, 1); len(all) != 2 {
		t.Errorf("after a restart there are %d messages, want 2", len(all))
	}
}

func TestSyncThatFailsIsTheEndOfWriting(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	s.Queue(1).Append(added(1, whole()))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	d.set(nil, func() error { return syscall.EIO })
	s.Queue(1).Append(added(2, whole()))
	if err := s.Wait(); !errors.Is(err, queue.ErrNotStored) || !errors.Is(err, syscall.EIO) {
		t.Errorf("Wait when a sync fails = %v, want %v and the cause", err, queue.ErrNotStored)
	}
	d.set(nil, nil) // a second sync would succeed, and say nothing of what the first has dropped
	s.Queue(1).Append(added(3, whole()))
	if err := s.Wait(); !errors.Is(err, queue.ErrNotStored) {
		t.Errorf("Wait after a sync has failed = %v, want %v", err, queue.ErrNotStored)
	}
	s.mu.Lock()
	if s.next.batch != nil {
		t.Error("what cannot be written any more is collected in memory")
	}
	s.mu.Unlock()
	if err := s.Close(); !errors.Is(err, queue.ErrNotStored) {
		t.Errorf("Close after a sync has failed = %v, want %v", err, queue.ErrNotStored)
	}
	s = openOn(t, d.crashed(nil, 0))
	if all, _ := messagesOf(t, s, 1); len(all) < 1 {
		t.Error("what was acknowledged is lost")
	}
}

func TestValueThatCannotBeKeptIsTheEndOfWriting(t *testing.T) {
	s := openOn(t, newDisk())
	m := whole()
	m.Properties = []queue.Property{{Key: "k", Value: make(chan int)}}
	s.Queue(1).Append(added(1, m))
	if err := s.Wait(); !errors.Is(err, queue.ErrNotStored) {
		t.Errorf("Wait = %v, want %v", err, queue.ErrNotStored)
	}
}
