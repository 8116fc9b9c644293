// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"

	"overdue/internal/lifecycle"
	"overdue/internal/servicebus/sdk"
)

const (
	// maxSenders bounds the links that are kept open, since entity names come from clients. There
	// are more only while sends to more entities are in flight.
	maxSenders = 256
	// idleSender is how long an unused link is kept. The service detaches a link that was idle
	// for 10 minutes, and the next send would pay for the recovery.
	idleSender = 9 * time.Minute
	// closeTimeout bounds closing a link.
	closeTimeout = 10 * time.Second
)

// senders keeps one open link per entity.
type senders struct {
	client *sdk.Client
	log    *zap.Logger

	mu         sync.Mutex
	byName     map[string]*sender // by the entity's name in lower case
	closeTimer *time.Timer        // armed while an idle sender is kept; closeIdle compares with the clock
	closed     bool
	closing    sync.WaitGroup // counts links that are being closed
}

// sender is the link to one entity, with the number of sends that use it.
type sender struct {
	sdk  *azservicebus.Sender
	of   *azservicebus.Client // that made the link
	name string               // in lower case

	opened  atomic.Bool   // no failure seen since the link was opened
	opening chan struct{} // holds a token while a send opens the link
	refused error         // the broker's refusal of the link; guarded by opening

	// Guarded by senders.mu.
	users    int
	lastUsed time.Time
	dropped  bool // no longer in byName; closed by its last user
}

func newSenders(client *sdk.Client, log *zap.Logger) *senders {
	return &senders{client: client, log: log, byName: map[string]*sender{}}
}

// do calls f with an open link to an entity. It calls f again if the client had to be replaced,
// see [sdk.Client.Do].
func (s *senders) do(ctx context.Context, entity string, f func(context.Context, *azservicebus.Sender) error) error {
	return classify(s.client.Do(ctx, func(ctx context.Context, client *azservicebus.Client) error {
		kept, err := s.once(ctx, entity, client, f)
		if kept && errors.Is(err, errGone) {
			// The entity behind the link is gone. It may have been created again under its name.
			_, err = s.once(ctx, entity, client, f)
		}
		return err
	}))
}

// once tries once. kept reports whether the link was open before.
func (s *senders) once(ctx context.Context, entity string, client *azservicebus.Client, f func(context.Context, *azservicebus.Sender) error) (kept bool, err error) {
	sn, err := s.acquire(entity, client)
	if err != nil {
		return false, err
	}
	kept = sn.opened.Load()
	if err = sn.open(ctx); err == nil {
		err = classify(f(ctx, sn.sdk))
	}
	s.release(sn, err)
	return kept, err
}

// acquire returns client's sender for an entity and counts one user. It opens no link.
func (s *senders) acquire(entity string, client *azservicebus.Client) (*sender, error) {
	name := strings.ToLower(entity)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if sn := s.byName[name]; sn != nil {
		if sn.of == client {
			sn.users++
			return sn, nil
		}
		s.dropLocked(sn) // its client has been replaced
		if sn.users == 0 {
			s.goodbyeLocked(sn)
		}
	}
	sdk, err := client.NewSender(entity, nil) // does not dial
	if err != nil {
		return nil, classify(err)
	}
	if len(s.byName) >= maxSenders {
		s.dropOldestLocked()
	}
	sn := &sender{sdk: sdk, of: client, name: name, users: 1, opening: make(chan struct{}, 1)}
	s.byName[name] = sn
	return sn, nil
}

// release returns sn with the result of its send. It drops a sender that cannot recover. After
// any other error the next send opens the link again.
func (s *senders) release(sn *sender, err error) {
	if err != nil { // any error: opening an open link costs no round trip
		sn.opened.Store(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sn.users--
	sn.lastUsed = time.Now()
	if hopeless(err) {
		s.dropLocked(sn)
	}
	switch {
	case sn.dropped && sn.users == 0:
		s.goodbyeLocked(sn)
	case sn.users == 0 && s.closeTimer == nil && !s.closed:
		s.closeTimer = time.AfterFunc(idleSender, s.closeIdle)
	}
}

// hopeless reports whether a sender that failed with err cannot recover: its entity or its rights
// are gone, or it was closed, which the SDK never undoes.
func hopeless(err error) bool {
	var sb *azservicebus.Error
	return errors.Is(err, errGone) || errors.Is(err, errUnauthorized) ||
		errors.As(err, &sb) && sb.Code == azservicebus.CodeClosed
}

// dropLocked removes sn from the map, so that the next send makes a new sender.
func (s *senders) dropLocked(sn *sender) {
	if sn.dropped {
		return
	}
	sn.dropped = true
	delete(s.byName, sn.name)
}

// dropOldestLocked closes the sender that has been unused the longest, if there is one.
func (s *senders) dropOldestLocked() {
	var oldest *sender
	for _, sn := range s.byName {
		if sn.users == 0 && (oldest == nil || sn.lastUsed.Before(oldest.lastUsed)) {
			oldest = sn
		}
	}
	if oldest != nil {
		s.dropLocked(oldest)
		s.goodbyeLocked(oldest)
	}
}

// closeIdle closes links that have been idle for idleSender, and arms the timer for the next one.
func (s *senders) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeTimer = nil
	if s.closed {
		return
	}
	next := time.Duration(-1)
	for _, sn := range s.byName {
		if sn.users > 0 {
			continue
		}
		left := idleSender - time.Since(sn.lastUsed)
		if left <= 0 {
			s.dropLocked(sn)
			s.goodbyeLocked(sn)
		} else if next < 0 || left < next {
			next = left
		}
	}
	if next > 0 {
		s.closeTimer = time.AfterFunc(next, s.closeIdle)
	}
}

// goodbyeLocked closes the link in a goroutine: the SDK waits for its own lock and for the
// broker.
func (s *senders) goodbyeLocked(sn *sender) {
	s.closing.Add(1)
	go func() {
		defer s.closing.Done()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := sn.sdk.Close(ctx); err != nil {
			s.log.Debug("link did not close in order", zap.String("work_queue", sn.name), zap.Error(err))
		}
	}()
}

// close closes every link. Call it when no send is in flight.
func (s *senders) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	if s.closeTimer != nil {
		s.closeTimer.Stop()
	}
	for _, sn := range s.byName {
		s.dropLocked(sn)
		s.goodbyeLocked(sn)
	}
	s.mu.Unlock()
	return lifecycle.Wait(ctx, &s.closing)
}

// open opens the link. The SDK opens a link at its first use. Two first uses at once would open
// it twice and leak a session with the goroutine that renews its token. So one caller opens the
// link and the others wait.
func (sn *sender) open(ctx context.Context) error {
	if sn.opened.Load() {
		return nil
	}
	select {
	case sn.opening <- struct{}{}:
		defer func() { <-sn.opening }()
	case <-ctx.Done():
		return classify(ctx.Err())
	}
	if sn.opened.Load() || sn.refused != nil {
		return sn.refused
	}
	if _, err := sn.sdk.NewMessageBatch(ctx, nil); err != nil {
		err = classify(err)
		if hopeless(err) {
			sn.refused = err // callers that wait here share the refusal
		}
		return err
	}
	sn.opened.Store(true)
	return nil
}
