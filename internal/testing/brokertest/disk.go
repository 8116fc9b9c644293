// SPDX-License-Identifier: Apache-2.0

package brokertest

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"

	"overdue/internal/broker/queue"
)

// A SlowDisk has what is reported to it once Sync is called. The zero value is empty. Contents that
// are on it are in memory no more.
type SlowDisk struct {
	// Prompt makes After call Sync.
	Prompt bool
	// MaxBacklog is how many steps may wait in trouble before Backlog says so. 0: any number.
	MaxBacklog int

	mu      sync.Mutex
	dirty   bool
	kept    kept
	pending []report // not yet kept
	failure error
	unread  error // see MakeUnreadable
	waiting []func(error)
	onDisk  []func() // of pending
	holders int
	alone   int // steps that nobody held together with others
	held    int
}

type slowLog struct {
	d  *SlowDisk
	id uint32
}

func (l slowLog) Append(s *queue.Step) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.d.reportLocked(stepOf(l.id, s))
	if s.OnDisk != nil {
		l.d.onDisk = append(l.d.onDisk, s.OnDisk)
	}
	if l.d.holders > 0 {
		l.d.held++
	} else {
		l.d.alone++
	}
}

// Keep implements queue.Log.
func (l slowLog) Keep(bytes int) bool { return bytes <= 0 }

// Read implements queue.Log.
func (l slowLog) Read(records []int64, each func(record int64, c queue.Content)) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.unread != nil {
		return l.d.unread
	}
	messages := l.d.kept.queue(l.id).messages
	for _, record := range records {
		if m, has := messages[record]; has {
			each(record, queue.Content{MessageID: m.MessageID, Body: bytes.Clone(m.Body)})
		}
	}
	return nil
}

// MakeUnreadable makes reads of contents fail from now on. nil ends that.
func (d *SlowDisk) MakeUnreadable(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unread = err
}

// Queue implements broker.Disk.
func (d *SlowDisk) Queue(id uint32) queue.Log { return slowLog{d, id} }

// Hold implements broker.Disk.
func (d *SlowDisk) Hold() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holders++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.holders--
		if n := len(d.pending); n > 0 && d.holders == 0 {
			d.pending[n-1].whole = true
		}
	}
}

// After implements broker.Disk.
func (d *SlowDisk) After(f func(error)) {
	if d.Prompt && d.Trouble() == nil {
		d.Sync()
	}
	d.mu.Lock()
	if d.failure == nil && d.dirty {
		d.waiting = append(d.waiting, f)
		d.mu.Unlock()
		return
	}
	err := d.failure
	d.mu.Unlock()
	f(err)
}

// Sync puts on disk what was reported.
func (d *SlowDisk) Sync() {
	d.mu.Lock()
	for _, r := range d.pending {
		r.keep(&d.kept)
	}
	waiting, onDisk := d.waiting, d.onDisk
	d.dirty, d.pending, d.waiting, d.onDisk = false, nil, nil, nil
	d.mu.Unlock()
	for _, f := range waiting {
		f(nil)
	}
	for _, f := range onDisk {
		f()
	}
}

// Fail makes After answer with err from now on, also those who wait. nil ends that.
func (d *SlowDisk) Fail(err error) {
	d.mu.Lock()
	d.failure = err
	var waiting []func(error)
	if err != nil {
		waiting, d.waiting = d.waiting, nil
	}
	d.mu.Unlock()
	for _, f := range waiting {
		f(err)
	}
}

// Trouble implements broker.Disk.
func (d *SlowDisk) Trouble() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// Backlog implements broker.Disk.
func (d *SlowDisk) Backlog() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.MaxBacklog == 0 || len(d.pending) < d.MaxBacklog {
		return nil
	}
	return d.failure
}

// Steps returns how many steps there were since the last call, by whether they were held.
func (d *SlowDisk) Steps() (alone, held int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	alone, held = d.alone, d.held
	d.alone, d.held = 0, 0
	return alone, held
}

// Until calls Sync as long as do waits for it, and fails the test if do does not wait. It is for a
// synctest bubble.
func (d *SlowDisk) Until(t testing.TB, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("%s returns %v before the disk has it", what, err)
		return
	default:
	}
	for {
		d.Sync()
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s = %v", what, err)
			}
			return
		default:
		}
	}
}
