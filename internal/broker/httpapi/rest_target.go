// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rights"
)

// A restTarget is what a request of the REST runtime API is about. The token
// alone says which delivery is meant; what stands in front of it the service uses
// to find its way.
type restTarget struct {
	call  rights.Call
	need  rights.Need // its path is that of the entity, /$DeadLetterQueue included
	token queue.LockToken
	err   error // what is wrong with the path, for when it is clear who asks
}

// targetOf reads what r is about, see rights.OfHTTP. ok is false when it is no request of the REST
// runtime API.
func targetOf(r *http.Request) (t restTarget, ok bool) {
	q, err := rights.OfHTTP(r.Method, r.URL.EscapedPath(), r.ContentLength != 0)
	switch {
	case errors.Is(err, rights.ErrUnlisted):
		return t, false
	case errors.Is(err, rights.ErrBody), errors.Is(err, rights.ErrNoMessages), err != nil && r.Method == http.MethodPost:
		return restTarget{err: badRequest("The request is refused: %v.", err)}, true
	case err != nil || q.Call == rights.Administer:
		return t, false
	}
	t = restTarget{call: q.Call, need: q.Need}
	if q.Token != "" {
		if t.token, ok = parseToken(q.Token); !ok {
			t.err = badRequest("The lock token '%.64s' is no UUID.", q.Token)
		}
	}
	return t, true
}

// parseToken reads a lock token: a UUID, with dashes or without.
func parseToken(s string) (t queue.LockToken, ok bool) {
	s = strings.ReplaceAll(s, "-", "")
	if len(s) != 2*len(t) {
		return t, false
	}
	_, err := hex.Decode(t[:], []byte(s))
	return t, err == nil
}
