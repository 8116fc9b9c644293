// SPDX-License-Identifier: Apache-2.0

package brokerhttp

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"overdue/internal/queue"
)

type restOperation int

// The operations of the REST runtime API.
const (
	restSend             restOperation = iota // POST   {path}/messages
	restPeekLock                              // POST   {path}/messages/head
	restReceiveAndDelete                      // DELETE {path}/messages/head
	restUnlock                                // PUT    {path}/messages/{message-id or sequence number}/{lock token}
	restComplete                              // DELETE the same
	restRenewLock                             // POST   the same
)

// A restTarget is what a request of the REST runtime API is about. The token
// alone says which delivery is meant; what stands in front of it the service uses
// to find its way.
type restTarget struct {
	operation restOperation
	path      string // of the entity, /$DeadLetterQueue included
	token     queue.LockToken
	err       error // what is wrong with the path, for when it is clear who asks
}

// targetOf reads what r is about. ok is false when it is no request of the REST
// runtime API: names of entities may contain slashes, so the path alone does not
// tell, and one that is not certain belongs to the administration of an entity.
func targetOf(r *http.Request) (t restTarget, ok bool) {
	segments := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	is := func(fromEnd int, name string) bool {
		i := len(segments) - fromEnd
		return i > 0 && strings.EqualFold(segments[i], name)
	}
	last := len(segments) - 1
	behind := 0 // segments behind the entity's
	switch {
	case r.Method == http.MethodPost && is(1, "messages"):
		t.operation, behind = restSend, 1
	case r.Method == http.MethodPost && is(1, "head") && is(2, "messages"):
		t.operation, behind = restPeekLock, 2
	case r.Method == http.MethodDelete && is(1, "head") && is(2, "messages"):
		t.operation, behind = restReceiveAndDelete, 2
	case is(3, "messages"):
		op, known := map[string]restOperation{
			http.MethodPut: restUnlock, http.MethodDelete: restComplete, http.MethodPost: restRenewLock,
		}[r.Method]
		token, isToken := parseToken(segments[last])
		if !known || !isToken && r.Method != http.MethodPost {
			return t, false
		}
		t.operation, t.token, behind = op, token, 3
		if !isToken {
			t.err = badRequest("The lock token '%.64s' is no UUID.", segments[last])
		}
	default:
		return t, false
	}
	path, err := url.PathUnescape(strings.Join(segments[:len(segments)-behind], "/"))
	if err != nil { // cannot be: net/http has unescaped it before
		return t, false
	}
	t.path = path
	return t, true
}

// parseToken reads a lock token: a UUID, with dashes or without.
func parseToken(s string) (t queue.LockToken, ok bool) {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(s) != 2*len(t) {
		return t, false
	}
	_, err := hex.Decode(t[:], []byte(s))
	return t, err == nil
}
