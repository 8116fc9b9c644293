// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"

	"overdue/internal/amqp"
)

// A Scope says what has ended: a link, a session or a connection.
type Scope string

// The scopes.
const (
	Link       Scope = "link"
	Session    Scope = "session"
	Connection Scope = "connection"
)

// An EndedError says that a link, its session or its connection has ended. It is unknown whether an
// unsettled transfer has arrived.
type EndedError struct {
	Scope  Scope
	Remote *amqp.Error // the reason that the peer states; nil = none
	Cause  error       // why this side ended it; nil = the peer did, or Close was called
}

func (e *EndedError) Error() string {
	switch {
	case e.Remote != nil:
		return fmt.Sprintf("the peer has ended the %s: %v", e.Scope, e.Remote)
	case e.Cause != nil:
		return fmt.Sprintf("the %s has ended: %v", e.Scope, e.Cause)
	}
	return fmt.Sprintf("the %s has ended", e.Scope)
}

// Unwrap returns the reason, from either side.
func (e *EndedError) Unwrap() error {
	if e.Remote != nil {
		return e.Remote
	}
	return e.Cause
}

// ErrNoChannel says that the connection has no channel for another session.
var ErrNoChannel = errors.New("the connection has no room for another session")

var (
	errClosed    = errors.New("closed by this side")
	errGivenUp   = errors.New("a transfer was abandoned halfway")
	errNoOutcome = errors.New("the peer settled the transfer without an outcome")
	errNoReason  = errors.New("the broker rejected the message without a reason")
)

// violation is a breach of the protocol by the peer.
func violation(format string, args ...any) error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, format, args...)
}

// ended returns the error for callers that wait on a connection which ended for this reason.
func ended(why error) *EndedError {
	if e := (*EndedError)(nil); errors.As(why, &e) {
		return e
	}
	if errors.Is(why, errClosed) {
		return &EndedError{Scope: Connection}
	}
	return &EndedError{Scope: Connection, Cause: why}
}

// goodbye returns the error of the close for a connection that ends for this reason, if it can
// still carry one.
func goodbye(why error) (e *amqp.Error, carries bool) {
	var ended *EndedError
	var broken *amqp.Error
	switch {
	case errors.Is(why, errClosed), errors.As(why, &ended):
		return nil, true
	case errors.As(why, &broken), errors.Is(why, amqp.ErrMalformed), errors.Is(why, amqp.ErrFraming):
		return amqp.AsError(why), true
	}
	return nil, false
}
