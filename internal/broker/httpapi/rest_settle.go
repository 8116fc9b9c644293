// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"

	"overdue/internal/broker"
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
	var err error
	switch t.call {
	case rights.Unlock:
		err = q.Abandon(t.token)
	case rights.Complete:
		err = q.Complete(t.token)
	case rights.RenewLock:
		_, err = q.RenewLock(t.token)
	}
	if err != nil {
		return err
	}
	if refusal := ns.WaitForDisk(); refusal != nil {
		return refusal
	}
	w.Header().Set("Content-Type", rest.ErrorContentType)
	w.WriteHeader(http.StatusOK)
	return nil
}
