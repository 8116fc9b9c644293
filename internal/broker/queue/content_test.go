// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// onDisk is a queue whose log has the contents of these messages alone.
func onDisk(t *testing.T, cfg Config, bodies ...string) (*Queue, *memoryLog) {
	t.Helper()
	log := newMemoryLog(t)
	cfg.Log = log
	q := New(cfg)
	t.Cleanup(q.Close)
	for i, body := range bodies {
		send(t, q, named(fmt.Sprint("id-", i), body))
	}
	log.sync()
	return q, log
}

func TestReadThatFailsTakesNothing(t *testing.T) {
	q, log := onDisk(t, Config{}, "a", "b", "c")
	must(t, q.Defer(receive(q.NewConsumer(PeekLock), 1)[0].LockToken))
	c := q.NewConsumer(PeekLock)
	c.AddCredit(5)
	log.failure = errors.New("the disk has failed")
	if ds, _, err := c.Take(nil); len(ds) > 0 || !errors.Is(err, log.failure) {
		t.Errorf("Take = %d deliveries, %v, want none and %v", len(ds), err, log.failure)
	}
	if vs, err := q.Peek(nil, 0, 9); len(vs) > 0 && err == nil || !errors.Is(err, log.failure) {
		t.Errorf("Peek = %d messages, %v, want %v", len(vs), err, log.failure)
	}
	if ds, err := q.ReceiveDeferred(PeekLock, 1); len(ds) > 0 || !errors.Is(err, log.failure) {
		t.Errorf("ReceiveDeferred = %d deliveries, %v, want none and %v", len(ds), err, log.failure)
	}
	log.failure = nil
	ds, _, err := c.Take(nil)
	if err != nil || len(ds) != 2 || ds[0].MessageID != "id-1" {
		t.Fatalf("Take once the log can be read = %v, %v, want the messages b and c", ds, err)
	}
	wantBodies(t, "taken", ds, "b", "c")
	ds, err = q.ReceiveDeferred(PeekLock, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantBodies(t, "received by number", ds, "a")
}

func TestContentThatTheLogHasLostIsAnError(t *testing.T) {
	q, log := onDisk(t, Config{}, "a", "b")
	lost := log.messages[1]
	delete(log.messages, 1)
	c := q.NewConsumer(PeekLock)
	c.AddCredit(5)
	if ds, _, err := c.Take(nil); len(ds) > 0 || err == nil {
		t.Errorf("Take = %v, %v, want an error and no message without its content", ds, err)
	}
	if _, err := q.Peek(nil, 0, 9); err == nil {
		t.Error("Peek shows a message without its content")
	}
	log.messages[1] = lost
}

// Others go on while a peek reads contents.
func TestPeekLeavesOutWhatIsRemovedMeanwhile(t *testing.T) {
	q, log := onDisk(t, Config{}, "a", "b", "c", "d")
	token := receive(q.NewConsumer(PeekLock), 1)[0].LockToken
	reads := 0
	log.reading = func() {
		if reads++; reads == 1 {
			must(t, q.Complete(token))
		}
	}
	wantBodies(t, "peek", seen(q.Peek(nil, 0, 2)), "b", "c")
	if reads != 2 {
		t.Errorf("the log was read %d times, want once more for the message that took the place", reads)
	}
}

// In mode LockAndRemove a message is gone for the log once it is taken. If it comes back, the log
// gets all of it again.
func TestContentThatWasTakenAndDeletedComesBack(t *testing.T) {
	for name, inTime := range map[string]bool{"before it was on disk": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			log := newMemoryLog(t)
			q := New(Config{Log: log})
			t.Cleanup(q.Close)
			send(t, q, named("id", "a"))
			if inTime {
				log.sync()
			}
			c := q.NewConsumer(LockAndRemove)
			d := receive(c, 1)[0]
			if len(log.messages) > 0 {
				t.Error("the log has the message still")
			}
			must(t, q.Release(d.LockToken))
			if m := log.messages[1]; string(m.Body) != "a" || m.MessageID != "id" {
				t.Errorf("the log has %q and %q of the message that has come back, want all of it", m.MessageID, m.Body)
			}
			log.sync() // of the first time that it was Added, for all that the queue knows
			if q.entries.byNumber.get(1).away() {
				t.Error("its content has left memory, and may not be on disk again")
			}
			wantBodies(t, "taken again", receive(c, 1), "a")
		})
	}
}

func TestLargeContentsAreReadAFewAtATime(t *testing.T) {
	half := strings.Repeat("x", readBytes/2)
	q, _ := onDisk(t, Config{}, half, half, half, "small")
	vs := seen(q.Peek(nil, 0, 9))
	if len(vs) != 2 {
		t.Errorf("a peek shows %d messages, want as many as are read in one go, 2", len(vs))
	}
	wantBodies(t, "the next page", seen(q.Peek(nil, vs[len(vs)-1].SequenceNumber+1, 9)), half, "small")
	c := q.NewConsumer(PeekLock)
	c.AddCredit(9)
	c.Drain()
	for _, want := range [][]string{{half, half}, {half, "small"}} {
		<-c.Ready()
		ds, drained, err := c.Take(nil)
		if err != nil {
			t.Fatal(err)
		}
		wantBodies(t, "taken", ds, want...)
		if last := want[1] == "small"; drained != last {
			t.Errorf("with %d bytes taken, drained = %v", len(want[0]), drained)
		}
	}
}

func TestMemoryIsGivenBackToTheLog(t *testing.T) {
	log := newMemoryLog(t)
	log.limit = 10
	q := New(Config{Log: log})
	send(t, q, text("12345"), text("12345"), text("1"))
	log.sync()
	if got := log.inMemory; got != 10 {
		t.Errorf("%d bytes are in memory, want 10", got)
	}
	ds := receive(q.NewConsumer(PeekLock), 3)
	wantBodies(t, "taken", ds, "12345", "12345", "1")
	must(t, q.Complete(ds[0].LockToken))
	must(t, q.DeadLetter(ds[1].LockToken, "r", "d"))
	dead := receive(q.DeadLetterQueue().NewConsumer(PeekLock), 1)
	must(t, q.DeadLetterQueue().Complete(dead[0].LockToken))
	if got := log.inMemory; got != 0 {
		t.Errorf("%d bytes are in memory when their messages are gone, want none", got)
	}
	send(t, q, text("1234"), text("5"))
	if q.Close(); log.inMemory != 0 {
		t.Errorf("%d bytes are in memory when the queue is closed, want none", log.inMemory)
	}
}

func TestContentSizeIsThatOfMessagesThatAreThere(t *testing.T) {
	q, _ := onDisk(t, Config{}, "a", "bcd")
	if got, want := q.ContentSize(1, 2, 7), len("id-0a")+len("id-1bcd"); got != want {
		t.Errorf("ContentSize = %d, want %d", got, want)
	}
}

func TestContentsOfASessionAreReadFromTheLog(t *testing.T) {
	log := newMemoryLog(t)
	q := New(Config{Log: log, RequiresSession: true})
	defer q.Close()
	send(t, q, Message{Body: []byte("a"), SessionID: "s", HasSession: true}, Message{Body: []byte("b"), SessionID: "s", HasSession: true})
	log.sync()
	wantBodies(t, "peek", seen(q.Sessions().Peek(nil, "s", 0, 9)), "a", "b")
	c := accept(t, q, "s").NewConsumer(PeekLock)
	ds := receive(c, 1)
	wantBodies(t, "taken", ds, "a")
	must(t, q.Defer(ds[0].LockToken))
	ds, err := q.Sessions().ReceiveDeferred(LockAndRemove, "s", ds[0].SequenceNumber)
	if err != nil {
		t.Fatal(err)
	}
	wantBodies(t, "received by number", ds, "a")
	if records := slices.Collect(maps.Keys(log.messages)); !slices.Equal(records, []int64{2}) {
		t.Errorf("the log has the records %d, want that of b", records)
	}
}
