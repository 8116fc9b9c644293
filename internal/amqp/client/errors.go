// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"

	"overdue/internal/amqp"
)

// A Scope is what an EndedError is about.
type Scope string

// The scopes.
const (
	Link       Scope = "link"
	Session    Scope = "session"
	Connection Scope = "connection"
)

// An EndedError says that a link, its session or its connection has ended. Whether a transfer that
// was unsettled then has arrived is unknown.
type EndedError struct {
	Scope  Scope
	Remote *amqp.Error // the reason that the peer states; nil = none
	Cause  error       // why this end has ended it; nil = it has not, or it was closed
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

// Unwrap returns the reason, whoever stated it.
func (e *EndedError) Unwrap() error {
	if e.Remote != nil {
		return e.Remote
	}
	return e.Cause
}

var (
	errClosed    = errors.New("it was closed")
	errSilent    = fmt.Errorf("nothing has come from the peer for %v", idleTimeout)
	errGivenUp   = errors.New("a transfer was given up in the middle")
	errNoOutcome = errors.New("the peer has settled it without an outcome")
	errNoReason  = errors.New("the broker rejects it without a reason")
)

// violation is an error of the peer.
func violation(format string, args ...any) error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, format, args...)
}

// ended returns the error of those who wait for something of a connection that ended for this
// reason.
func ended(why error) *EndedError {
	if e := (*EndedError)(nil); errors.As(why, &e) {
		return e
	}
	if errors.Is(why, errClosed) {
		return &EndedError{Scope: Connection}
	}
	return &EndedError{Scope: Connection, Cause: why}
}

// goodbye returns the close with which a connection ends for this reason, or nil if the connection
// is of no use for that any more.
func goodbye(why error) *amqp.Close {
	var ended *EndedError
	var broken *amqp.Error
	switch {
	case errors.Is(why, errClosed), errors.As(why, &ended):
		return &amqp.Close{}
	case errors.As(why, &broken), errors.Is(why, amqp.ErrMalformed), errors.Is(why, amqp.ErrFraming):
		return &amqp.Close{Error: amqp.AsError(why)}
	}
	return nil
}
