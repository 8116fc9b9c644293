// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"overdue/internal/amqp"
)

const (
	// putTimeout bounds one token: getting it, putting it, and the answer.
	putTimeout = 20 * time.Second
	// putsAtOnce bounds the concurrent puts of one connection.
	putsAtOnce = 16
	// putTries bounds the attempts to put a token when the $cbs links are lost. A refused token
	// is not put again.
	putTries = 3
	// maxClaims bounds the addresses of one connection that have a token.
	maxClaims = 20_000
	// maxAddress bounds an address for a token, in bytes. The paths of Service Bus end at 260
	// characters, and those of subscriptions at twice that.
	maxAddress = 1024

	minRenewal = time.Second      // between a token and the next for the same address
	firstRetry = 5 * time.Second  // after a renewal that failed; doubled from then on
	lastRetry  = 60 * time.Second // the longest pause between two
)

// A keeper renews the tokens of the relay's own identity on one upstream connection. As in the
// SDKs, every address of a link has a claim of its own: whether a token for an entity also opens
// the nodes below it is not documented.
type keeper struct {
	host   string // of the namespace, for audiences
	tokens func(context.Context, string) (Token, error)
	put    func(ctx context.Context, audience string, t Token) (response, error)
	log    func(error) // for tokens that are unavailable or refused

	ctx     context.Context
	cancel  context.CancelFunc
	turns   chan struct{} // one per put in progress
	running sync.WaitGroup

	mu     sync.Mutex
	over   bool
	claims map[string]*claim // by path, in lower case
}

// A claim is the state of the token for one address. The keeper's mutex guards it.
type claim struct {
	path     string // its key
	audience string
	links    int // links that need it
	waiting  []waiter
	asked    bool          // a put is in progress
	again    bool          // its token may be of a source that has been replaced since
	has      bool          // a token is in effect, until expires
	expires  time.Time     // zero: unknown
	due      time.Time     // when to renew it; zero: never
	retry    time.Duration // after the next renewal that fails
	timer    *time.Timer   // wakes at due; nil: no link needs the token, or it is not renewed
}

// newKeeper returns a keeper that lives until close, or until ctx ends.
func newKeeper(ctx context.Context, host string, tokens func(context.Context, string) (Token, error),
	put func(context.Context, string, Token) (response, error), log func(error)) *keeper {
	k := &keeper{host: host, tokens: tokens, put: put, log: log,
		turns: make(chan struct{}, putsAtOnce), claims: make(map[string]*claim)}
	k.ctx, k.cancel = context.WithCancel(ctx)
	return k
}

// close stops all work and waits for its end. Waiting links get no result: their connection is
// gone. The caller must not hold a lock that done takes.
func (k *keeper) close() {
	k.mu.Lock()
	k.over = true
	for _, c := range k.claims {
		c.stop()
		c.waiting = nil
	}
	k.mu.Unlock()
	k.cancel()
	k.running.Wait()
}

// need claims the token for a link to the node at path, which is plain. It reports true when a
// token is in effect. Otherwise another goroutine calls done when a token is, or with the refusal
// of the link. In every case the claim must be released.
func (k *keeper) need(path string, done func(*amqp.Error)) (*claim, bool) {
	return k.ask(path, waiter{done: done})
}

// prove is like need, but always puts a token, to get upstream's current answer.
func (k *keeper) prove(path string, done func(*amqp.Error)) (*claim, bool) {
	return k.ask(path, waiter{done: done, anew: true})
}

// A waiter is called when a token is in effect, or with the error.
type waiter struct {
	done func(*amqp.Error)
	anew bool // a token already in effect does not suffice
}

func (k *keeper) ask(spelled string, w waiter) (c *claim, inEffect bool) {
	path := strings.ToLower(spelled)
	if path == "" || len(path) > maxAddress {
		return nil, true // no token can exist for it; upstream judges the link
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return nil, false
	}
	if c = k.claims[path]; c == nil {
		if len(k.claims) >= maxClaims && !k.forgetLocked() {
			k.running.Go(func() {
				w.done(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are tokens for %d addresses on this connection.", maxClaims))
			})
			return nil, false
		}
		c = &claim{path: path, audience: "sb://" + k.host + "/" + spelled}
		k.claims[path] = c
	}
	c.links++
	now := time.Now()
	if !w.anew && c.inEffect(now) {
		if c.timer == nil {
			k.armLocked(c, now)
		}
		return c, true
	}
	c.waiting = append(c.waiting, w)
	k.startLocked(c)
	return c, false
}

// release undoes a need; nil has no effect. A token that no link needs is not renewed.
func (k *keeper) release(c *claim) {
	if c == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.links--; c.links == 0 {
		c.stop()
		k.dropLocked(c)
	}
}

// dropLocked drops a claim without a token. A claim with one stays for the next link, so that
// clients that come back need not wait.
func (k *keeper) dropLocked(c *claim) {
	if c.links == 0 && !c.has && !c.asked {
		delete(k.claims, c.path)
	}
}

// inEffect reports whether a link may rely on the token. It still may after a failed renewal,
// until the token expires. It may not if no renewal was tried when one was due.
func (c *claim) inEffect(now time.Time) bool {
	return c.has && (c.expires.IsZero() || now.Before(c.expires)) &&
		(c.timer != nil || c.asked || c.due.IsZero() || now.Before(c.due))
}

func (c *claim) stop() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// forgetLocked drops the claims that no link needs. It reports whether there is room for another
// claim.
func (k *keeper) forgetLocked() bool {
	for path, c := range k.claims {
		if c.links == 0 && !c.asked {
			delete(k.claims, path)
		}
	}
	return len(k.claims) < maxClaims
}

// renew puts other tokens for all links, because what makes them has been replaced.
func (k *keeper) renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked()
	for _, c := range k.claims {
		c.again = c.asked
		k.startLocked(c)
	}
}

// repeatLocked puts another token where the last one may be of a source that has been replaced.
// Links that wait, wait for that.
func (k *keeper) repeatLocked(c *claim) bool {
	if !c.again {
		return false
	}
	c.again, c.asked = false, false
	k.startLocked(c)
	return true
}

func (k *keeper) startLocked(c *claim) {
	if c.asked || k.over {
		return
	}
	c.stop()
	c.asked = true
	k.running.Go(func() { k.work(c) })
}

// work gets a token for c and puts it.
func (k *keeper) work(c *claim) {
	select {
	case k.turns <- struct{}{}:
	case <-k.ctx.Done():
		return
	}
	expires, err := k.try(c.audience)
	<-k.turns
	if k.ctx.Err() != nil {
		return // the connection has ended, so the result does not matter
	}
	if err != nil {
		k.failed(c, err)
	} else {
		k.succeeded(c, expires)
	}
}

// try puts a token, and tries again when the pair is lost meanwhile.
func (k *keeper) try(audience string) (expires time.Time, err error) {
	ctx, cancel := context.WithTimeout(k.ctx, putTimeout)
	defer cancel()
	token, err := k.tokens(ctx, audience)
	if err != nil {
		return time.Time{}, fmt.Errorf("relay: get a token for %.300q: %w", audience, err)
	}
	if !token.Expires.IsZero() && !time.Now().Before(token.Expires) {
		return time.Time{}, fmt.Errorf("relay: get a token for %.300q: the new token has already expired; check the clock of this machine", audience)
	}
	for n := 1; ; n++ {
		res, err := k.put(ctx, audience, token)
		switch {
		case err == nil && res.succeeded():
			return token.Expires, nil
		case err == nil:
			err = res.refusal()
		case n < putTries && ctx.Err() == nil && errors.Is(err, errPairLost):
			continue
		}
		// Upstream may quote the token that it refuses.
		if token.Text != "" && strings.Contains(err.Error(), token.Text) {
			err = amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "The token was refused.")
		}
		return time.Time{}, fmt.Errorf("relay: put a token for %.300q: %w", audience, err)
	}
}

func (k *keeper) succeeded(c *claim, expires time.Time) {
	now := time.Now()
	k.mu.Lock()
	if k.repeatLocked(c) {
		k.mu.Unlock()
		return
	}
	c.asked, c.has, c.expires, c.retry = false, true, expires, firstRetry
	c.due = time.Time{}
	if !expires.IsZero() {
		c.due = now.Add(renewAfter(expires.Sub(now)))
	}
	waiting := c.waiting
	c.waiting = nil
	if c.links > 0 {
		k.armLocked(c, now)
	}
	k.mu.Unlock()
	for _, w := range waiting {
		w.done(nil)
	}
}

// failed refuses the links that wait. It retries a renewal until the token expires; then upstream
// ends the links that depend on it. If upstream reports that the entity does not exist, the token
// is no longer in effect.
func (k *keeper) failed(c *claim, err error) {
	refusal := refusalOf(err)
	now := time.Now()
	k.mu.Lock()
	if k.repeatLocked(c) {
		k.mu.Unlock()
		return
	}
	c.asked = false
	waiting := c.waiting
	c.waiting = nil
	stands := c.has && (c.expires.IsZero() || now.Before(c.expires)) && refusal.Condition != amqp.ErrCondNotFound
	if stands && !c.expires.IsZero() {
		left := c.expires.Sub(now)
		pause := max(min(c.retry/2+rand.N(c.retry/2), left/2), minRenewal)
		c.retry = min(2*c.retry, lastRetry)
		c.due = now.Add(pause)
		if c.links > 0 && pause < left {
			k.armLocked(c, now)
		}
	} else if !stands {
		c.has = false
		k.dropLocked(c)
	}
	k.mu.Unlock()
	if len(waiting) == 0 || !saidUpstream(err) || refusal.Condition == amqp.ErrCondUnauthorizedAccess {
		k.log(err) // otherwise a client named a missing entity, which is no concern of the operator
	}
	for _, w := range waiting {
		if stands && !w.anew {
			w.done(nil)
		} else {
			w.done(refusal)
		}
	}
}

// armLocked sets the timer for the renewal of c, if it has one.
func (k *keeper) armLocked(c *claim, now time.Time) {
	c.stop()
	if c.due.IsZero() || k.over {
		return
	}
	c.timer = time.AfterFunc(c.due.Sub(now), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if c.timer != nil && !time.Now().Before(c.due) {
			k.startLocked(c)
		}
	})
}

// renewAfter returns the delay between a put and the renewal of a token that is valid for life.
// It leaves time for a few failures, and spreads the renewals of a connection.
func renewAfter(life time.Duration) time.Duration {
	return max(life/10*7+rand.N(max(life/10, 1)), minRenewal)
}

// saidUpstream reports whether err is an answer of upstream.
func saidUpstream(err error) bool {
	var said *amqp.Error
	return errors.As(err, &said)
}

// refusalOf returns the error for a client whose link waits for a token that does not come. It is
// upstream's answer if there is one, otherwise an error after which clients retry. The log has
// the cause.
func refusalOf(err error) *amqp.Error {
	var said *amqp.Error
	switch {
	case errors.As(err, &said):
		return said
	case errors.Is(err, context.DeadlineExceeded):
		return amqp.Errorf(condTimeout, "The token for the entity was not accepted in time.")
	}
	return amqp.Errorf(condServerBusy, "There is no token for the entity at the moment.")
}
