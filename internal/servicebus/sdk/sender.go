// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// ErrClosed says that a Sender has been closed.
var ErrClosed = errors.New("sdk: sender is closed")

// A Sender is a sender of the SDK for one entity, then another one in its place. It is safe for
// concurrent use.
type Sender struct {
	client *Client
	entity string

	mu     sync.Mutex
	closed bool
	link   *azservicebus.Sender // nil: none is made yet
	whose  *azservicebus.Client // whose link is
}

// NewSender makes a sender for a queue or a topic. It opens no link yet.
func (c *Client) NewSender(entity string) *Sender { return &Sender{client: c, entity: entity} }

// Do has f send something, which MUST end with ctx and MUST NOT keep the sender that it is given.
// The error of f is returned as it is, and decides whether the next one gets another sender; see
// [Client.Do] for when f is called again.
func (s *Sender) Do(ctx context.Context, f func(context.Context, *azservicebus.Sender) error) error {
	return s.client.Do(ctx, func(ctx context.Context, client *azservicebus.Client) error {
		link, err := s.linkOf(client)
		if err != nil {
			return err
		}
		if err = f(ctx, link); err != nil && detached(err) {
			s.drop(link)
		}
		return err
	})
}

// Send sends one message.
func (s *Sender) Send(ctx context.Context, m *azservicebus.Message) error {
	return s.Do(ctx, func(ctx context.Context, link *azservicebus.Sender) error { return link.SendMessage(ctx, m, nil) })
}

// linkOf is the sender to use that is client's.
func (s *Sender) linkOf(client *azservicebus.Client) (*azservicebus.Sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.link != nil && s.whose == client {
		return s.link, nil
	}
	link, err := client.NewSender(s.entity, nil) // makes a value; it does not dial
	if err != nil {
		return nil, fmt.Errorf("sender for %s: %w", s.entity, err)
	}
	s.link, s.whose = link, client // one that was before is closed with its client
	return link, nil
}

// drop lets the next one make another sender than old.
func (s *Sender) drop(old *azservicebus.Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != old {
		return // somebody was faster
	}
	s.link = nil
	s.client.later(func(ctx context.Context) { _ = old.Close(ctx) }) // it is detached already
}

// Close closes the link. Sends that are under way fail.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	link := s.link
	s.link, s.closed = nil, true
	s.mu.Unlock()
	if link == nil {
		return nil
	}
	return link.Close(ctx)
}
