// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// closeTime bounds the goodbye to a link that is of no more use.
const closeTime = 5 * time.Second

// newSender makes a sender for the monitor queue. It opens no link yet.
func (s *Scheduler) newSender() (*azservicebus.Sender, error) {
	sender, err := s.cfg.Client.NewSender(s.cfg.MonitorQueue, nil)
	if err != nil {
		return nil, fmt.Errorf("scheduler: sender for %s: %w", s.cfg.MonitorQueue, err)
	}
	return sender, nil
}

// link is the sender for the monitor queue. It MUST be asked for each time.
func (s *Scheduler) link() *azservicebus.Sender { return s.sender.Load() }

// renew takes another sender in the place of one that failed with err, if that one is of no more use: the SDK
// does not open a link again that was detached because its queue is gone or closed to us, also
// when the queue is there again.
func (s *Scheduler) renew(old *azservicebus.Sender, err error) {
	if !detached(err) {
		return
	}
	fresh, err := s.newSender()
	if err != nil || !s.sender.CompareAndSwap(old, fresh) {
		return // the client is closed, or somebody was faster
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = old.Close(ctx) // it is detached already
}

// detached reports whether err comes from a link that is gone.
func detached(err error) bool {
	var link *amqp.LinkError
	var sb *azservicebus.Error
	return errors.As(err, &link) || errors.As(err, &sb) &&
		(sb.Code == azservicebus.CodeNotFound || sb.Code == azservicebus.CodeUnauthorizedAccess || sb.Code == azservicebus.CodeClosed)
}
