// SPDX-License-Identifier: Apache-2.0

package store

import (
	"syscall"
	"testing"

	"overdue/internal/broker/queue"
)

// queueOn is the queue with a number as its broker makes it at a start.
func queueOn(t *testing.T, s *Store, id uint32) *queue.Queue {
	t.Helper()
	q := queue.New(queue.Config{Log: s.Queue(id)})
	t.Cleanup(q.Close)
	last, err := s.Load(id, func(c *queue.Change) error { q.Restore(c); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Resume(last); err != nil {
		t.Fatal(err)
	}
	return q
}

// send returns the number of a message that it sends.
func send(t *testing.T, q *queue.Queue) int64 {
	t.Helper()
	number, err := q.Send(queue.Message{Body: []byte("m")})
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// A send that comes when the disk fills up is refused, and its message can be peeked and received
// all the same. So its number is used, although a kill takes the message away.
func TestNumbersThatWereSeenWhileTheDiskWasFullAreNotGivenOutAgain(t *testing.T) {
	for name, before := range map[string]int{"a queue with messages": 3, "one that has had none": 0} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			s := openOn(t, d)
			s.PutEntity(1, nil)
			q := queueOn(t, s, 1)
			for range before {
				send(t, q)
			}
			if err := s.Wait(); err != nil {
				t.Fatal(err)
			}
			seen := int64(0)
			for range 2 { // the second process fills the disk, too, before it has written anything
				d.set(func() error { return syscall.ENOSPC }, nil)
				for range 5 {
					number := send(t, q)
					if number <= seen {
						t.Errorf("number %d was given out again, after %d", number, seen)
					}
					seen = number
				}
				full := d
				d = d.crashed(nil, 0)
				full.set(nil, nil)
				s = openOn(t, d)
				q = queueOn(t, s, 1)
			}
			if number := send(t, q); number <= seen {
				t.Errorf("number %d was given out again, after %d", number, seen)
			}
		})
	}
}

func TestNumbersGoOnWithoutAGapAfterAStop(t *testing.T) {
	d := newDisk()
	for want := range int64(4) {
		s := openOn(t, d)
		if want == 0 {
			s.PutEntity(1, nil)
		}
		if number := send(t, queueOn(t, s, 1)); number != want+1 {
			t.Errorf("the number is %d, want %d", number, want+1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
