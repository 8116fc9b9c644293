// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/listener"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// namespaceOf returns the namespace that a request is for: see broker.NamespaceOf.
func (s *Server) namespaceOf(r *http.Request) *broker.Namespace {
	return s.cfg.Broker.NamespaceOf(r.Host, r.Header.Get("Authorization"))
}

// mayUse decides whether a request of the REST runtime API may go on.
func (s *Server) mayUse(r *http.Request, n rights.Need) error {
	return s.admit(r, s.namespaceOf(r).Authorize(r.Header.Get("Authorization"), n.Path, n.OneOf))
}

// admit passes on what became of a request's token. If the token is valid, the connection has no
// quota any more.
func (s *Server) admit(r *http.Request, err error) error {
	if err == nil {
		listener.Admit(r)
	}
	return err
}

// mayManage decides whether a request may go on that is about what is at path,
// not about its messages; "" is the namespace.
func (s *Server) mayManage(r *http.Request, path string) error {
	return s.admit(r, s.namespaceOf(r).Authorize(r.Header.Get("Authorization"), path, broker.ClaimManage))
}

// adminGate decides whether a request of the administration API may go on. All
// its rights come with the claim Manage.
//
// A token has to be for the path of the request, not for the entity that it is about. The Go SDK
// signs the path of each request, down to a rule or a list. Where the request says that messages be
// forwarded, it has a token for that.
type adminGate struct{ s *Server }

func (g adminGate) Authorize(r *http.Request, path string, right adminapi.Right) error {
	needed := broker.ClaimManage
	if right == adminapi.Forward {
		needed |= broker.ClaimSend
	} else {
		var plain error
		if path, plain = address.URLPath(r.URL.EscapedPath()); plain != nil {
			return plain // which the handler has found before
		}
	}
	err := g.s.admit(r, g.s.namespaceOf(r).Authorize(r.Header.Get("Authorization"), path, needed))
	if errors.Is(err, broker.ErrClaimMissing) {
		return fmt.Errorf("%w: %w", adminapi.ErrClaimMissing, err)
	}
	return err
}
