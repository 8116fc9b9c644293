// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

var (
	// ErrClosed says that the Namespace has been closed.
	ErrClosed = errors.New("link: namespace is closed")
	// ErrNoConnection says that no connection can be opened.
	ErrNoConnection = errors.New("link: no connection")
	// ErrTooLarge says that the entity takes no transfer of that size. Send returns it before
	// anything is sent, and also when the broker says so.
	ErrTooLarge = errors.New("link: larger than the entity allows")
	// errNoToken says that the token source has failed. It makes its own attempts.
	errNoToken = errors.New("link: no token")
)

// AMQP conditions of Service Bus.
const (
	// ConditionNotFound: there is no such entity.
	ConditionNotFound = "amqp:not-found"
	// ConditionLockLost: the lock lapsed, or somebody else has settled the message.
	ConditionLockLost = "com.microsoft:message-lock-lost"
	// ConditionSessionLost: the lock of the session lapsed, and those of its messages with it.
	ConditionSessionLost = "com.microsoft:session-lock-lost"
	// ConditionSessionLocked: somebody else has the session.
	ConditionSessionLocked = "com.microsoft:session-cannot-be-locked"
	// ConditionNotAllowed: for example a receiver without a session where they are required, or one
	// on an entity that forwards.
	ConditionNotAllowed = "amqp:not-allowed"
	// ConditionUnauthorized: the key or token lacks the right.
	ConditionUnauthorized = "amqp:unauthorized-access"
	// ConditionDisabled: the entity takes no such operation.
	ConditionDisabled = "com.microsoft:entity-disabled"
	// ConditionMessageNotFound: the requested message is gone, or locked.
	ConditionMessageNotFound = "com.microsoft:message-not-found"

	conditionDeadLetter = "com.microsoft:dead-letter"
)

// StatusError is a request that $cbs or $management has answered with a failure.
type StatusError struct {
	Code        int    // as in HTTP: 401 where the token is not good, 404 where the entity is not known
	Condition   string // of AMQP, "" where the answer has none
	Description string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("refused with %d: %s", e.Code, e.Description)
}

// clientError gives an error of a link the type that the SDK has for it, so that callers know one
// set of errors.
func clientError(err error) error {
	var ended *client.EndedError
	var remote *codec.Error
	switch {
	case errors.As(err, &ended):
		e := remoteError(ended.Remote)
		switch {
		case ended.Scope == client.Link:
			return &amqp.LinkError{RemoteErr: e}
		case ended.Scope == client.Session:
			return &amqp.SessionError{RemoteErr: e}
		case ended.Cause != nil:
			return fmt.Errorf("%w: %w", &amqp.ConnError{RemoteErr: e}, ended.Cause)
		}
		return &amqp.ConnError{RemoteErr: e}
	case errors.As(err, &remote):
		return remoteError(remote)
	}
	return err
}

func remoteError(e *codec.Error) *amqp.Error {
	if e == nil {
		return nil
	}
	return &amqp.Error{Condition: amqp.ErrCond(e.Condition), Description: e.Description}
}

// Condition is the AMQP condition with which the broker refused or ended something,
// or "" when err is of another kind.
func Condition(err error) string {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return string(remote.Condition)
	}
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		return string(link.RemoteErr.Condition)
	}
	var answer *StatusError
	if errors.As(err, &answer) {
		if answer.Condition == "" && answer.Code == http.StatusNotFound {
			return ConditionNotFound
		}
		return answer.Condition
	}
	return ""
}

// Unauthorized reports whether the broker refused for want of a right, on a link or by a node.
func Unauthorized(err error) bool {
	var answer *StatusError
	return Condition(err) == ConditionUnauthorized || errors.As(err, &answer) && answer.Code == http.StatusUnauthorized
}

// refused reports whether err is a refusal by the peer. Such an error says nothing about the
// connection. Any other leaves its state in doubt.
func refused(err error) bool {
	var link *amqp.LinkError
	var answer *StatusError
	var attach *amqp.Error // a refused attach, with nothing around it
	var ended *amqp.SessionError
	var closed *amqp.ConnError
	return errors.As(err, &link) || errors.As(err, &answer) ||
		errors.As(err, &attach) && !errors.As(err, &ended) && !errors.As(err, &closed)
}

// Lost reports whether err is about the connection to the namespace, and not about the request over
// it. There is no connection, or it has ended, or nobody has answered in time.
func Lost(err error) bool {
	var connection *amqp.ConnError
	var network net.Error
	return errors.Is(err, ErrNoConnection) || errors.As(err, &connection) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || cutOff(err)
}

// cutOff reports whether a link or a session has ended with its connection: nobody has said why.
func cutOff(err error) bool {
	var link *amqp.LinkError
	var session *amqp.SessionError
	switch {
	case errors.As(err, &link):
		return link.RemoteErr == nil
	case errors.As(err, &session):
		return session.RemoteErr == nil
	}
	return false
}
