// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
)

const (
	// attemptTimeout bounds one attempt to send. Then the connection is given up: a peer that is
	// silent for so long will not answer on it.
	attemptTimeout = 8 * time.Second
	// reopenTimeout bounds one attempt to open a connection, which takes about ten round trips.
	reopenTimeout = 15 * time.Second
	// Between two attempts there is a pause, which doubles from firstPause up to longestPause.
	firstPause   = 200 * time.Millisecond
	longestPause = 500 * time.Millisecond
	// mostAttempts bounds them where each is answered soon.
	mostAttempts = 10
)

// A ReconnectingSender sends to one entity, over a link and a connection that it opens again when
// they end. It is safe for concurrent use; several transfers can be in flight.
type ReconnectingSender struct {
	ns      *Namespace
	entity  string
	ownsAll bool // ns has no other use

	opening turn
	mu      sync.Mutex
	current *Sender // nil: none is open
	closed  bool
}

// ReconnectingSender makes one with a connection of its own. It opens no connection yet.
func (n *Namespace) ReconnectingSender(entity string) *ReconnectingSender {
	own := New(n.cfg)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = own.Close() // it has no connection
	}
	n.own = append(n.own, own)
	return &ReconnectingSender{
		ns:      own,
		entity:  entity,
		ownsAll: true,
		opening: newTurn(),
	}
}

// Open opens the connection unless it is open, so that the next batch need not wait for it.
func (s *ReconnectingSender) Open(ctx context.Context) error {
	_, err := s.open(ctx)
	return err
}

// Send returns when the broker has accepted the batch, or with what stands in the way. It tries
// again after errors that may pass, ten times in all or until ctx ends; so the broker may have
// accepted a batch twice, or, after an error, once.
func (s *ReconnectingSender) Send(ctx context.Context, b *Batch) error {
	return s.transmit(ctx, codec.BatchMessageFormat, b.bytes)
}

// transmit is Send for an encoded message or batch, as its format says.
func (s *ReconnectingSender) transmit(ctx context.Context, format uint32, payload []byte) error {
	pause := time.Duration(0)
	for left := mostAttempts - 1; ; left-- {
		fresh, err := s.attempt(ctx, format, payload)
		if err == nil || left == 0 || final(err) && (fresh || keepsLink(err)) {
			return err
		}
		if pause == 0 && rejected(err) {
			pause = firstPause // the broker is busy; only a lost link is replaced at once
		}
		if pause > 0 {
			select {
			case <-time.After(pause/2 + rand.N(pause/2)):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return err // says more than that time is up
		}
		pause = min(max(2*pause, firstPause), longestPause)
	}
}

// attempt sends once. The result fresh reports whether the link was opened for it, or could not
// be. An older link may end for reasons that a new one does not meet, such as a token that has
// expired while nothing was sent.
func (s *ReconnectingSender) attempt(ctx context.Context, format uint32, payload []byte) (fresh bool, err error) {
	l, err := s.opened()
	if l == nil && err == nil {
		fresh = true
		l, err = s.open(ctx)
	}
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err = l.transmit(ctx, format, payload)
	switch {
	case err == nil, keepsLink(err):
	case refused(err):
		s.forget(l)
	default:
		s.forget(l)
		l.ns.sending.drop(l.conn)
	}
	return fresh, err
}

// open returns the sender that is open, or opens one.
func (s *ReconnectingSender) open(ctx context.Context) (*Sender, error) {
	if l, err := s.opened(); l != nil || err != nil {
		return l, err
	}
	if err := s.opening.take(ctx); err != nil {
		return nil, err
	}
	defer s.opening.give()
	if l, err := s.opened(); l != nil || err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	l, err := s.ns.Sender(ctx, s.entity)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = l // if the sender was closed meanwhile, so was the connection
	return l, nil
}

func (s *ReconnectingSender) opened() (*Sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.current, nil
}

// isOpen reports whether a link is open.
func (s *ReconnectingSender) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil
}

// forget makes the next attempt open another link.
func (s *ReconnectingSender) forget(l *Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == l {
		s.current = nil
	}
}

// Close closes the link, and a connection of its own. Transfers in flight fail.
func (s *ReconnectingSender) Close(ctx context.Context) error {
	s.mu.Lock()
	l := s.current
	s.current, s.closed = nil, true
	s.mu.Unlock()
	if l != nil && ctx.Err() == nil {
		l.Close(ctx)
	}
	if !s.ownsAll {
		return nil
	}
	return s.ns.Close()
}

// keepsLink reports whether the link can be used again after err.
func keepsLink(err error) bool { return rejected(err) || errors.Is(err, errNoToken) }

// rejected reports whether the broker has answered a transfer, and its link still stands.
func rejected(err error) bool {
	var outcome *amqp.Error
	var link *amqp.LinkError
	var session *amqp.SessionError
	var connection *amqp.ConnError
	return errors.As(err, &outcome) && !errors.As(err, &link) && !errors.As(err, &session) && !errors.As(err, &connection)
}

// finalConditions are those that another attempt meets again.
var finalConditions = []string{
	ConditionNotFound, ConditionNotAllowed, string(amqp.ErrCondUnauthorizedAccess), string(amqp.ErrCondResourceLimitExceeded),
	string(amqp.ErrCondDecodeError), string(amqp.ErrCondNotImplemented), "com.microsoft:entity-disabled",
}

// final reports whether another attempt would fail as well.
func final(err error) bool {
	if answer := (*StatusError)(nil); errors.As(err, &answer) && answer.Code < http.StatusInternalServerError {
		return true
	}
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrClosed) || errors.Is(err, errNoToken) || slices.Contains(finalConditions, Condition(err))
}
