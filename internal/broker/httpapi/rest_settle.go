// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// settle completes or unlocks the message that is locked with the token, or renews
// the lock. An unlock counts as a failed delivery, like an abandon, which it is in
// the older clients: without a count a message that nobody can handle would come
// for ever.
func settle(w http.ResponseWriter, ns *broker.Namespace, t restTarget) error {
	q, refusal := ns.Locked(t.need.Path)
	if refusal != nil {
		return refusal
	}
	if t.call == rights.RenewLock {
		if _, err := q.RenewLock(t.token); err != nil {
			return err
		}
		return answerSettled(w)
	}
	if refusal := ns.DiskTrouble(); refusal != nil {
		return refusal
	}
	end := q.Complete
	if t.call == rights.Unlock {
		end = func(token queue.LockToken) error { return q.Abandon(token) }
	}
	if err := end(t.token); err != nil {
		return err
	}
	if refusal := ns.WaitForDisk(); refusal != nil {
		return refusal
	}
	return answerSettled(w)
}

func answerSettled(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", rest.ErrorContentType)
	w.WriteHeader(http.StatusOK)
	return nil
}
