// SPDX-License-Identifier: Apache-2.0

package queue

import "errors"

// errLost says that a log does not have what it has kept.
var errLost = errors.New("queue: the content of a message is missing on the disk")

// readBytes bounds the contents that are read for one peek or one receive. A message that is larger
// is read alone.
const readBytes = 1 << 20

// away reports whether the log alone has the content of e.
func (e *entry) away() bool { return e.body == nil && e.messageID == "" && e.contentSize > 0 }

// contents is what was read of messages that are away, by record. That of one which was not found
// is empty.
type contents map[int64]Content

// of is the content of e, which is away.
func (has contents) of(e *entry) (c Content, found bool) {
	c = has[e.record.int64()]
	return c, c.Body != nil || c.MessageID != ""
}

// lack reports whether the content of e is missing.
func (has contents) lack(e *entry) bool {
	if !e.away() {
		return false
	}
	_, found := has.of(e)
	return !found
}

// fill gives m, which is of e, the content if that was read.
func (has contents) fill(m *Message, e *entry) {
	if e.away() {
		c, _ := has.of(e)
		m.Body, m.MessageID = c.Body, c.MessageID
	}
}

// missing is the records of those messages whose contents are missing.
func (es *entries) missing(seqs []int64, has contents) (records []int64) {
	for _, seq := range seqs {
		if e := es.byNumber.get(seq); e != nil && has.lack(e) {
			records = append(records, e.record.int64())
		}
	}
	return records
}

// A request is the contents that one peek or one receive needs from the log.
type request struct {
	has     contents
	missing []int64 // records
	bytes   int     // of all of them
}

// add adds e and reports whether there is room for more.
func (r *request) add(e *entry) (room bool) {
	if e.away() {
		r.bytes += int(e.contentSize)
		if r.has.lack(e) {
			r.missing = append(r.missing, e.record.int64())
		}
	}
	return r.bytes < readBytes
}

// withContents calls do, which takes the mutex of the queue. As long as do finds that contents are
// missing, it reads those from the log, without the mutex, and calls do again.
//
// Meanwhile a message may be removed: do does not find it any more, or its content is in memory
// until it is gone. So if do asks a second time for what the log does not have, that is lost.
func (c *changes) withContents(do func(has contents) (missing []int64)) error {
	var has contents
	for missing := do(nil); len(missing) > 0; missing = do(has) {
		if has == nil {
			has = make(contents, len(missing))
		}
		if err := c.read(has, missing); err != nil {
			return err
		}
	}
	return nil
}

// read adds to has what is missing. It is apart from withContents, where it would cost memory even
// without a log.
func (c *changes) read(has contents, missing []int64) error {
	for _, record := range missing {
		if _, asked := has[record]; asked {
			return errLost
		}
		has[record] = Content{}
	}
	return c.log.Read(missing, func(record int64, found Content) { has[record] = found })
}

// keep says that the log has e, and reports whether its content stays in memory.
func (c *changes) keep(e *entry) bool {
	e.kept |= keptLogged
	if c.log.Keep(int(e.contentSize)) {
		e.kept |= keptInUse
		c.inUse += int(e.contentSize)
		return true
	}
	return e.kept&keptAgain != 0
}

// release is the opposite of keep.
func (c *changes) release(e *entry) {
	if e.kept&keptInUse != 0 {
		c.use(-int(e.contentSize))
	}
	e.kept &^= keptLogged | keptInUse
	e.kept |= keptAgain
}

// use gives bytes back to the log. For those of a message that has moved to the dead-letter queue,
// inUse there falls below zero.
func (c *changes) use(bytes int) {
	c.log.Keep(bytes)
	c.inUse += bytes
}

// close gives up what is collected for the log.
func (c *changes) close() {
	c.noted, c.step = nil, Step{} // nobody asks for them any more
	if c.log != nil {
		c.use(-c.inUse)
	}
}

// putAway drops the contents of messages that the log has on disk. A message that was gone for the
// log meanwhile, and may be there again, is left alone: that it is on disk again is not known.
func putAway(q *Queue, es []*entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead != nil { // where some of them may be by now
		q.dead.mu.Lock()
		defer q.dead.mu.Unlock()
	}
	for _, e := range es {
		if e.kept&(keptLogged|keptAgain) == keptLogged {
			e.body, e.messageID = nil, ""
		}
	}
}
