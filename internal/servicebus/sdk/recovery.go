// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// ErrConnectionEnded is why an operation has failed when it was the client that failed. Its
// connection has ended and it opens no other, or it was closed, because it was replaced. Callers
// that have time try again.
var ErrConnectionEnded = errors.New("its connection has ended and it opens no other")

// errHangs is another reason to replace a client.
var errHangs = errors.New("an operation does not end with its context")

// succeeded notes that the client works.
func (g *generation) succeeded() {
	if g.failing.Load() != 0 {
		g.failing.Store(0)
	}
}

// beyondRecovery is why the client is to be replaced after an operation that failed with err, after
// the SDK's own tries; nil where there is no need.
func (g *generation) beyondRecovery(err error, began time.Time) error {
	took := time.Since(began)
	switch {
	case errors.Is(err, context.Canceled):
		return nil // whatever it was, nobody waited for it
	case g.sitsOnDead():
		// The SDK reads the condition with which a connection was closed, and takes most conditions as
		// they are meant of a link. It gives up, waits, or attaches again on the connection that is
		// closed.
		return fmt.Errorf("%w: %w", ErrConnectionEnded, err)
	case errors.Is(err, context.DeadlineExceeded) && took >= failureTimeout:
		return fmt.Errorf("no answer for %v: %w", took.Round(time.Second), err)
	case !lost(err):
		return nil
	}
	since := g.failing.Load()
	if since == 0 {
		since = began.UnixNano()
		g.failing.Store(since)
	}
	if failing := time.Since(time.Unix(0, since)); failing >= failureTimeout {
		return fmt.Errorf("nothing has succeeded for %v: %w", failing.Round(time.Second), err)
	}
	return nil
}

// lost reports whether err says that no answer came, rather than what the answer was.
func lost(err error) bool {
	var sb *azservicebus.Error
	var network net.Error
	var closed *amqp.ConnError
	return errors.As(err, &sb) && sb.Code == azservicebus.CodeConnectionLost ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) || errors.As(err, &closed)
}

// answered reports whether err is what the namespace says, or the SDK without asking it, of what
// was asked: a client that was closed says nothing of the kind.
func answered(err error) bool {
	var remote *amqp.Error
	var sb *azservicebus.Error
	return errors.As(err, &remote) || errors.Is(err, azservicebus.ErrMessageTooLarge) ||
		errors.As(err, &sb) && sb.Code != azservicebus.CodeConnectionLost && sb.Code != azservicebus.CodeClosed
}

// detached reports whether a sender that failed with err is of no more use: its link is gone, or
// closed to us, and the SDK does not always open another.
func detached(err error) bool {
	var link *amqp.LinkError
	var session *amqp.SessionError
	var sb *azservicebus.Error
	return errors.As(err, &link) || errors.As(err, &session) || errors.As(err, &sb) &&
		(sb.Code == azservicebus.CodeNotFound || sb.Code == azservicebus.CodeUnauthorizedAccess || sb.Code == azservicebus.CodeClosed)
}
