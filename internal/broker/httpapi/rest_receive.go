// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

const (
	// defaultWait is how long a receive waits for a message that says nothing else.
	// The API documents a minute; recordings of the service have four to five seconds.
	defaultWait = 5 * time.Second
	// maxWait is the longest time that a timer of .NET can be set to, in seconds.
	maxWait = 2147483
	// maxIdleBody bounds the body of a request that needs none, in bytes.
	maxIdleBody = 64 << 10
)

// receive gives out one message, or says that none came in time.
func (h *runtime) receive(w http.ResponseWriter, r *http.Request, ns *broker.Namespace, t restTarget) error {
	if err := rest.CheckOnce(r.Header, r.URL.RawQuery); err != nil {
		return err
	}
	wait, err := waitOf(r.URL.Query())
	if err != nil {
		return err
	}
	q, refusal := ns.Source(t.need.Path, true)
	if refusal != nil {
		return refusal
	}
	mode := queue.PeekLock
	if t.call == rights.ReceiveAndDelete {
		mode = queue.LockAndRemove
	}
	if refusal := ns.Disk().DeliveryTrouble(mode == queue.LockAndRemove); refusal != nil {
		return refusal
	}
	if _, err := readBody(w, r, maxIdleBody); err != nil {
		return err
	}
	if err := reserve(&h.receives, 1, h.options.MaxReceives); err != nil {
		return err
	}
	defer h.receives.Add(-1)
	d, err := take(r.Context(), q.Queue, mode, wait)
	switch {
	case err != nil:
		return err
	case d == nil:
		w.Header().Set("Content-Type", rest.ErrorContentType)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if mode == queue.LockAndRemove {
		return deliverAndDelete(w, ns, q, d)
	}
	_ = ns.Disk().Wait() // trouble with the disk keeps nobody from reading
	if err := deliverLocked(w, r, q, d); err != nil {
		// Nobody has got it, so nobody can settle it. A lock that is lost is as good.
		if lost := q.Release(d.LockToken); lost != nil && !errors.Is(lost, queue.ErrLockLost) {
			return lost
		}
		return away(r.Context(), err)
	}
	return nil
}

// waitOf reads how long a receive is to wait.
func waitOf(query url.Values) (time.Duration, error) {
	text := query.Get("timeout")
	if text == "" {
		return defaultWait, nil
	}
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil || seconds > maxWait {
		return 0, badRequest("The timeout '%.64s' is not a number of seconds from 0 to %d.", text, maxWait)
	}
	return time.Duration(seconds) * time.Second, nil
}

// take locks the next message, for which it waits. It returns nil when none came,
// and errAway when ctx ended: then no message stays locked.
func take(ctx context.Context, q *queue.Queue, mode queue.Mode, wait time.Duration) (*queue.Delivery, error) {
	c := q.NewConsumer(mode)
	defer c.Close() // gives back what lies there for nobody
	c.AddCredit(1)
	if wait == 0 {
		c.Drain()
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		if ctx.Err() != nil {
			return nil, errAway
		}
		ds, drained, err := c.Take(nil)
		switch {
		case err != nil:
			return nil, err
		case len(ds) > 0:
			return &ds[0], nil
		case drained:
			return nil, nil
		}
		select {
		case _, open := <-c.Ready():
			if !open {
				return nil, queue.ErrClosed
			}
		case <-late.C:
			c.Drain() // what has come in the meantime still counts
		case <-ctx.Done():
		}
	}
}

// deliverLocked answers with a message that stays locked. An error means that the
// client has not got it.
func deliverLocked(w http.ResponseWriter, r *http.Request, q broker.Place, d *queue.Delivery) error {
	m, err := show(&d.View)
	if err != nil {
		return err
	}
	if r.Context().Err() != nil {
		return errAway
	}
	token := amqp.UUID(d.LockToken).String()
	m.stamps.LockToken, m.stamps.LockedUntil = token, d.LockedUntil
	w.Header().Set("Location", locationOf(r, d.SequenceNumber, token))
	q.NoteDelivered()
	return m.write(w, http.StatusCreated)
}

// deliverAndDelete answers with a message that is removed from the queue first: a
// client that does not get it has lost it, and nobody gets it twice.
func deliverAndDelete(w http.ResponseWriter, ns *broker.Namespace, q broker.Place, d *queue.Delivery) error {
	m, err := show(&d.View)
	if err == nil {
		if refusal := ns.Disk().Wait(); refusal != nil {
			err = refusal
		}
	}
	if err != nil {
		if lost := q.Release(d.LockToken); lost != nil {
			return lost
		}
		return err
	}
	if err := q.Complete(d.LockToken); err != nil {
		return err
	}
	q.NoteDelivered()
	if err := m.write(w, http.StatusOK); err != nil {
		return errAway
	}
	return nil
}

// locationOf is where the message that r has locked can be settled.
func locationOf(r *http.Request, number int64, token string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	path := strings.TrimRight(r.URL.EscapedPath(), "/")
	path = path[:len(path)-len("head")] // targetOf has seen it
	return fmt.Sprintf("%s://%s%s%d/%s", scheme, r.Host, path, number, token)
}

// settle completes or unlocks the message that is locked with the token, or renews
// the lock. An unlock counts as a failed delivery, like an abandon, which it is in
// the older clients: without a count a message that nobody can handle would come
// for ever.
func settle(w http.ResponseWriter, ns *broker.Namespace, t restTarget) error {
	q, refusal := ns.Source(t.need.Path, false)
	if refusal != nil {
		return refusal
	}
	if t.call == rights.RenewLock {
		if _, err := q.RenewLocks([]queue.LockToken{t.token}); err != nil {
			return err
		}
		return answerSettled(w)
	}
	if refusal := ns.Disk().Trouble(); refusal != nil {
		return refusal
	}
	outcome := queue.Complete
	if t.call == rights.Unlock {
		outcome = queue.Abandon
	}
	if err := q.SettleOne(outcome, t.token); err != nil {
		return err
	}
	if refusal := ns.Disk().Wait(); refusal != nil {
		return refusal
	}
	return answerSettled(w)
}

func answerSettled(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", rest.ErrorContentType)
	w.WriteHeader(http.StatusOK)
	return nil
}
