// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"overdue/internal/door"
	"overdue/internal/sas"
)

// authorize says why a request may not go on, where there are keys: it has to show a token that
// one of them has signed and that is good for what it asks. The AMQP door asks for the same, see
// relay.Keys.
func (p *Proxy) authorize(r *http.Request) error {
	if len(p.cfg.Keys) == 0 {
		door.Admit(r) // its tokens are for the namespace to judge
		return nil
	}
	path, oneOf := wanted(r)
	now := time.Now()
	g, err := p.keys().Token(r.Header.Get("Authorization"), path, now)
	if err == nil && !g.Holds(now, oneOf) {
		err = sas.Missing(oneOf, path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	door.Admit(r)
	return nil
}

// keys are those that count now.
func (p *Proxy) keys() sas.Keys { return *p.known.Load() }

// SetKeys puts other keys in the place of Config.Keys. A door that asks for keys cannot come to ask for none, nor the other way
// round: that is decided when it is opened. What clients were granted lasts as long as their tokens, or their connections.
func (p *Proxy) SetKeys(keys sas.Keys) error {
	if (len(keys) == 0) != (len(p.cfg.Keys) == 0) {
		return errors.New("proxy: whether the doors ask for keys is decided when they are opened")
	}
	p.known.Store(&keys)
	return nil
}

// wanted says what a request is about, the path of an entity where it is about its messages, and
// which rights allow it, each alone. What is not surely a request of the runtime API is one of the
// administration's.
func wanted(r *http.Request) (path string, oneOf sas.Rights) {
	path = strings.Trim(r.URL.Path, "/")
	entity, ok := strings.CutSuffix(path, "/messages")
	if ok && r.Method == http.MethodPost {
		return entity, sas.Send
	}
	if entity, ok = strings.CutSuffix(path, "/messages/head"); ok && (r.Method == http.MethodPost || r.Method == http.MethodDelete) {
		return entity, sas.Listen
	}
	// {entity}/messages/{message-id}/{lock token}; a body would describe an entity of that name
	segments := strings.Split(path, "/")
	if n := len(segments); n > 3 && segments[n-3] == "messages" && lockToken.MatchString(segments[n-1]) && r.ContentLength == 0 {
		return strings.Join(segments[:n-3], "/"), sas.Listen
	}
	return path, sas.Manage
}

// lockToken is the form of a lock token, a UUID.
var lockToken = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
