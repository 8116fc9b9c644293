// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// The cause that keeps a journal from being read may pass, with a disk that answers again. So it is
// read again by itself, and the unreadable journal is reported once.
func TestAJournalThatCannotBeReadIsReadAgain(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "monitor"}} })
		s, err := scheduler.New(scheduler.Config{MonitorQueue: "monitor", Links: ns.Links(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }() // it does not matter here
		var mu sync.Mutex
		unread := 0
		j, err := Open(Config{Scheduler: s, Directory: directory, Namespace: "contoso", Changed: func(event string, _ error, _ Status) {
			mu.Lock()
			defer mu.Unlock()
			if event == eventRefusing {
				unread++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(putAll(j.file, oneCommit(1))...); err != nil {
			t.Fatal(err)
		}
		turn := func() { // a bit of each entry; twice leaves it as it was
			err := j.file.db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(j.file.bucket)
				k, v := b.Cursor().First()
				v = slices.Clone(v)
				v[len(v)-1] ^= 1
				return b.Put(k, v)
			})
			if err != nil {
				t.Error(err)
			}
		}
		turn()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- j.Run(ctx) }()
		time.Sleep(time.Minute)
		mu.Lock()
		if unread != 1 {
			t.Errorf("reported %d times that the journal cannot be read, want once", unread)
		}
		mu.Unlock()
		turn()
		time.Sleep(time.Minute)
		if q, _ := ns.Broker.Queue("monitor"); len(brokertest.Seen(q.Peek(nil, 0, 10))) != 1 {
			t.Error("the companion is not on the monitor queue, want it there once the journal can be read")
		}
		if st := j.Status(); st.Companions != 0 {
			t.Errorf("status %+v, want an empty journal", st)
		}
		stop()
		if err := errors.Join(<-ended, j.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
