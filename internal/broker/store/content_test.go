// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"overdue/internal/broker/queue"
)

// text is a message with this body.
func text(body string) queue.Stored {
	return queue.Stored{View: queue.View{Message: queue.Message{MessageID: "id of " + body, Body: []byte(body)}}}
}

// read returns the bodies of these records, as far as they are there.
func read(t *testing.T, l queue.Log, records ...int64) (bodies []string) {
	t.Helper()
	err := l.Read(records, func(record int64, c queue.Content) {
		body := string(c.Body)
		if want := "id of " + body; c.MessageID != want {
			t.Errorf("record %d has the message-id %q, want %q", record, c.MessageID, want)
		}
		bodies = append(bodies, body)
	})
	if err != nil {
		t.Errorf("Read(%d) = %v", records, err)
	}
	return bodies
}

func TestContentsAreReadInAnyOrder(t *testing.T) {
	s := openOn(t, newDisk())
	q := s.Queue(1)
	for record := range int64(9) {
		q.Append(added(record, text(fmt.Sprint(record))))
	}
	s.Queue(2).Append(added(9, text("of another queue")))
	if err := errors.Join(s.Wait(), s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	q.Append(&queue.Step{Changes: []queue.Change{{Fate: queue.Removed, Record: 2}}})
	q.Append(added(10, text("ten")))
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, q, 1, 2, 3, 4, 10, 9, 0), []string{"1", "3", "4", "ten", "0"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Read([]int64{1}, func(int64, queue.Content) {}); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Read after Close = %v, want %v", err, queue.ErrClosed)
	}
}

func TestContentsInMemoryStayWithinTheBounds(t *testing.T) {
	s := openOn(t, newDisk())
	s.KeepInMemory(10, 15)
	a, b := s.Queue(1), s.Queue(2)
	for i, step := range []struct {
		of    queue.Log
		bytes int
		want  bool
	}{
		{a, 8, true},
		{a, 3, false}, // more than 10 of one
		{a, 2, true},
		{b, 6, false}, // more than 15 of all
		{b, 5, true},
		{a, -4, true},
		{b, 4, true},
	} {
		if got := step.of.Keep(step.bytes); got != step.want {
			t.Errorf("step %d: Keep(%d) = %v", i, step.bytes, got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestContentLeavesMemoryWhenItIsOnDisk(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	syncing, proceed := make(chan bool, 10), make(chan bool)
	d.set(nil, func() error {
		syncing <- true
		<-proceed
		return nil
	})
	onDisk := make(chan bool, 1)
	step := added(1, text("a"))
	step.OnDisk = func() { onDisk <- true }
	s.Queue(1).Append(step)
	<-syncing
	if len(onDisk) > 0 {
		t.Error("OnDisk was called before the disk had the step")
	}
	close(proceed)
	<-onDisk
	if got := read(t, s.Queue(1), 1); !slices.Equal(got, []string{"a"}) {
		t.Errorf("read %q, want what is on disk", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestContentThatCannotBeReadIsTrouble(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	s.Queue(1).Append(added(1, text(strings.Repeat("a", 64<<10)))) // it has a block of its own, which Open does not read
	if err := errors.Join(s.Wait(), s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s, r := openObserved(t, d)
	d.mu.Lock()
	d.onRead = func() error { return syscall.EIO }
	d.mu.Unlock()
	if err := s.Queue(1).Read([]int64{1}, func(int64, queue.Content) { t.Error("there is a content") }); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Read = %v, want %v", err, syscall.EIO)
	}
	if err := <-r.troubles; !errors.Is(err, queue.ErrNotStored) || !errors.Is(err, syscall.EIO) {
		t.Errorf("trouble = %v, want %v and the cause", err, queue.ErrNotStored)
	}
}

func TestCheckFindsContentsThatDoNotFit(t *testing.T) {
	for name, spoil := range map[string]func(s *Store) error{
		"missing":       func(s *Store) error { return s.db.Delete(recordKey(prefixContent, 1, 2), nil) },
		"the last":      func(s *Store) error { return s.db.Delete(recordKey(prefixContent, 1, 3), nil) },
		"of no message": func(s *Store) error { return s.db.Delete(recordKey(prefixMessage, 1, 3), nil) },
		"another size":  func(s *Store) error { return s.db.Set(recordKey(prefixContent, 1, 2), []byte{0xa1, 0, 'x'}, nil) },
		"no message-id": func(s *Store) error { return s.db.Set(recordKey(prefixContent, 1, 2), []byte("text"), nil) },
	} {
		s := openOn(t, newDisk())
		for record := range int64(3) {
			s.Queue(1).Append(added(record+1, text("body")))
		}
		if err := errors.Join(s.Wait(), s.CheckContents(1), spoil(s)); err != nil {
			t.Fatal(name, err)
		}
		if err := s.CheckContents(1); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: CheckContents = %v, want %v", name, err, ErrDamaged)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
