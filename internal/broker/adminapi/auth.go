// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"errors"
	"fmt"
	"net/http"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
)

// Right is what a request wants to do with an entity. The service grants all of
// them with the claim Manage, and Forward with Send as well.
type Right int

// The rights.
const (
	Read Right = iota
	Write
	Delete
	Forward // have messages of another entity sent there
)

// String names the claims that the service asks for.
func (r Right) String() string {
	return [...]string{"Manage,EntityRead", "Manage,EntityWrite", "Manage,EntityDelete", "Send"}[r]
}

// An Authorizer decides whether a request may go on. It finds the token in the header
// Authorization, with or without a scheme in front of it. For the destination of a forward, that is
// the token which the client has sent for it. path is that of the entity, "" for the namespace;
// rules count as their subscription.
//
// For an error that wraps broker.ErrClaimMissing the client gets the service's own text for
// the operation. Any other error goes to the client unchanged, with status 401.
type Authorizer interface {
	Authorize(r *http.Request, path string, right Right) error
}

// A gate is what a request may do.
type gate struct {
	authorizer Authorizer // nil: everything
	r          *http.Request
	target     address.Target
}

// allow asks the authorizer. operation is what the service calls the operation
// where it names it, "" elsewhere.
func (g gate) allow(right Right, operation string) error {
	return g.ask(g.r, g.target.Entity(), right, operation)
}

func (g gate) ask(r *http.Request, path string, right Right, operation string) error {
	if g.authorizer == nil {
		return nil
	}
	err := g.authorizer.Authorize(r, path, right)
	if err == nil {
		return nil
	}
	return &refusal{status: http.StatusUnauthorized, detail: g.denial(err, right, operation), cause: err}
}

// forwardTokens are the headers with the tokens for the destinations of
// forwards: of messages, and of dead letters.
var forwardTokens = [...]string{"ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"}

// allowForward asks the authorizer whether messages may be forwarded to path, by
// the token in that header; a token for the whole request may do for both.
// Otherwise who manages one queue could send to all.
func (g gate) allowForward(path, header string) error {
	r := g.r
	if token := r.Header.Get(header); token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", token)
	}
	return g.ask(r, path, Forward, "")
}

// denial is what the service says, as tests of its SDKs assert it.
func (g gate) denial(err error, right Right, operation string) string {
	switch {
	case !errors.Is(err, broker.ErrClaimMissing):
		return err.Error()
	case operation != "":
		return fmt.Sprintf("401 SubCode=40100: Unauthorized : Unauthorized access for '%s' operation on endpoint 'sb://%s/%s'.",
			operation, g.r.Host, g.target.Path)
	case right == Read:
		return fmt.Sprintf("%v claims required for this operation.", right)
	}
	return fmt.Sprintf("Authorization failed for specified action: %v.", right)
}

func lacksClaim(err error) bool { return errors.Is(err, broker.ErrClaimMissing) }
