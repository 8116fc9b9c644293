// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// leaseLife is how long after the last renewal of its worker a companion comes to another.
	leaseLife = 20 * time.Second
	// RenewEvery is how often a worker has to renew what it holds.
	RenewEvery = 5 * time.Second
	// claimBytes is after how many bytes one claim has enough.
	claimBytes = 1 << 20
	// checkEvery is how often a worker asks for due companions that nobody has notified it of.
	// checkAlone is the same while notifications cannot reach it.
	checkEvery = 5 * time.Second
	checkAlone = 250 * time.Millisecond
	renewMost  = 1000
	// claimRest is how long a place is left alone of which nothing was learnt.
	claimRest = 500 * time.Millisecond
	// claimUnsure is for how long after a claim without an answer a worker asks whether it has leased
	// something.
	claimUnsure = 5 * time.Second
)

// Claim leases up to n items that are due at the instant now of the broker's clock, or whose leases
// have lapsed. There is nothing more to claim before wait is over, or Woken has a value. There may
// be leases beside an error, which says that some could not be requested, now or the last time. The
// leases of one server of a cluster do not wait for another server.
func (c *Companions) Claim(ctx context.Context, now time.Time, n int) (leases []Lease, wait time.Duration, err error) {
	ripe := slices.DeleteFunc(slices.Clone(c.places), func(k *place) bool { return k.rests() > 0 })
	rand.Shuffle(len(ripe), func(i, j int) { ripe[i], ripe[j] = ripe[j], ripe[i] })
	ripe = ripe[:min(len(ripe), n)]
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, k := range ripe {
		all.Go(func() {
			got := c.ask(ctx, k, now, n/len(ripe))
			mu.Lock()
			defer mu.Unlock()
			leases = append(leases, got...)
		})
	}
	all.Wait()
	wait = checkEvery
	for _, k := range c.places {
		wait = min(wait, k.rests())
		err = cmp.Or(err, k.lastError()) // one is enough: mostly all are the same
	}
	return leases, wait, err
}

// ask claims what is in one place.
func (c *Companions) ask(ctx context.Context, k *place, now time.Time, n int) (leases []Lease) {
	turn, asked, unsure := k.turn(), time.Now(), k.unsure()
	var got []string
	var due, lapse string
	var err error
	if unsure {
		err = c.recall(ctx, k)
	}
	if err == nil {
		err = c.do(ctx, func(ctx context.Context) (err error) {
			got, due, lapse, err = lease(ctx, c.s.client, k, now.UnixMilli(), c.life, n, claimBytes, c.token)
			return err
		})
	}
	if err != nil {
		k.setNext(turn, time.Now().Add(claimRest), 0, err)
		return nil
	}
	leases = c.take(k, got)
	next, soon := asked.Add(c.pace()), int64(0)
	if unsure {
		next = asked.Add(claimRest)
	}
	if ms, err := strconv.ParseFloat(due, 64); err == nil {
		soon = int64(ms)
		next = earlier(next, asked.Add(time.UnixMilli(soon).Sub(now)))
	}
	if ms, err := strconv.ParseInt(lapse, 10, 64); err == nil {
		next = earlier(next, asked.Add(time.Duration(ms)*time.Millisecond))
	}
	k.setNext(turn, next, soon, nil)
	return leases
}

// recall leases again what a claim has leased whose answer did not come, instead of waiting until
// that lapses.
func (c *Companions) recall(ctx context.Context, k *place) error {
	return c.do(ctx, func(ctx context.Context) error {
		held, err := holds(ctx, c.s.client, k, c.token)
		for _, id := range held {
			c.mu.Lock()
			known := c.inHand[id] != nil
			c.mu.Unlock()
			if !known && err == nil {
				err = handBack(ctx, c.s.client, k, c.channel, c.token, id, 0)
			}
		}
		return err
	})
}

// unsure reports whether an answer did not come, lately: what was asked may still come in.
func (k *place) unsure() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.lost) > claimUnsure {
		k.lost = time.Time{}
	}
	return !k.lost.IsZero()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// take notes what is in hand now, and leaves out what was before: its lease had lapsed, and it is
// seen to.
func (c *Companions) take(k *place, got []string) (leases []Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(got); i += 2 {
		id := got[i]
		if c.inHand[id] != nil {
			continue
		}
		c.inHand[id] = k
		leases = append(leases, Lease{itemOf(k, id, got[i+1])})
	}
	return leases
}

// pace is how often to ask where no notification may come.
func (c *Companions) pace() time.Duration {
	if c.listening.Load() {
		return checkEvery
	}
	return checkAlone
}

// rests is for how long there is nothing to lease, as far as is known.
func (k *place) rests() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(time.Until(k.next), 0)
}

// turn is how often something was brought.
func (k *place) turn() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.brought
}

// setNext has k left alone until an instant of our clock, unless something was brought since that
// turn. soon is when the next item is due, in ms, and err what kept us from learning that.
func (k *place) setNext(turn int, next time.Time, soon int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	if err != nil {
		k.lost = time.Now()
	}
	if k.brought == turn {
		k.next, k.soon = next, soon
	}
}

func (k *place) lastError() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// brings notes that something is due at an instant, in ms; 0 = nobody knows when. It reports
// whether that is before all else.
func (k *place) brings(due int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if due != 0 && k.soon != 0 && due >= k.soon {
		return false
	}
	k.soon, k.next = due, time.Time{}
	k.brought++
	return true
}

// Woken has a value when there may be something to claim before the wait is over.
func (c *Companions) Woken() <-chan struct{} { return c.woken }

func (c *Companions) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Renew keeps what is in hand from coming to other workers. It is due every RenewEvery.
func (c *Companions) Renew(ctx context.Context) error {
	by := map[*place][]string{}
	c.mu.Lock()
	for id, k := range c.inHand {
		by[k] = append(by[k], id)
	}
	c.mu.Unlock()
	for k, ids := range by {
		for part := range slices.Chunk(ids, renewMost) {
			if err := c.do(ctx, func(ctx context.Context) error {
				_, err := renew(ctx, c.s.client, k, c.token, c.life, part) // what another has by now is seen to all the same
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// release takes l out of hand, and says where it is kept.
func (c *Companions) release(l *Lease) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inHand, l.ID)
	return c.placeOf(l.ID, l.Note)
}

// Done forgets an item that has been seen to.
func (c *Companions) Done(ctx context.Context, l Lease) error {
	k := c.release(&l)
	return c.insist(ctx, func(ctx context.Context) error { return finish(ctx, c.s.client, k, mostDead, []any{l.ID, ""}) })
}

// GiveBack lets another worker have an item, at once and as it was.
func (c *Companions) GiveBack(ctx context.Context, l Lease) error {
	k := c.release(&l)
	return c.insist(ctx, func(ctx context.Context) error {
		return handBack(ctx, c.s.client, k, c.channel, c.token, l.ID, millis(l.Due))
	})
}

// LetGo renews an item no more: it comes to the worker that claims it when its lease has lapsed.
func (c *Companions) LetGo(l Lease) { c.release(&l) }

// Bury puts an item that nobody can do anything with where operators find it.
func (c *Companions) Bury(ctx context.Context, l Lease, reason, description string) error {
	k := c.release(&l)
	text, err := json.Marshal(Dead{Item: l.Item, At: time.Now().UTC(), Reason: reason, Description: description})
	if err != nil {
		return err
	}
	return c.insist(ctx, func(ctx context.Context) error {
		return finish(ctx, c.s.client, k, mostDead, []any{l.ID, string(text)})
	})
}

// listenPing is after how long in silence it is asked whether the connection is still of use.
const listenPing = 10 * time.Second

// Listen makes Woken yield when another process keeps something that is due before all else, until
// ctx ends. Without it, and while Redis does not answer, a worker asks every checkAlone.
func (c *Companions) Listen(ctx context.Context) error {
	for ctx.Err() == nil {
		c.listen(ctx)
		c.listening.Store(false)
		c.wakeAll()
		select {
		case <-time.After(keepPause * 10):
		case <-ctx.Done():
		}
	}
	return nil
}

// listen does so over one connection.
func (c *Companions) listen(ctx context.Context) {
	sub := subscribe(ctx, c.s.client, c.channel)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // which ends the wait
	defer func() {
		if stop() {
			_ = sub.Close() // it is of no more use
		}
	}()
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(ctx, listenPing)
		if silent := (net.Error)(nil); errors.As(err, &silent) && silent.Timeout() && !pinged && sub.Ping(ctx) == nil {
			pinged = true
			continue
		}
		if err != nil {
			return
		}
		pinged = false
		switch m := m.(type) {
		case *redis.Subscription:
			c.Heard()
		case *redis.Message:
			c.heard(m.Payload)
		}
	}
}

// heard handles a notification of a place.
func (c *Companions) heard(name string) {
	for _, k := range c.places {
		if k.name == name {
			k.brings(0)
			c.wake()
		}
	}
}

// Heard wakes the workers of all places. A caller that learns of new companions in another way
// needs no Listen.
func (c *Companions) Heard() {
	c.listening.Store(true)
	c.wakeAll()
}

// wakeAll wakes the workers of all places.
func (c *Companions) wakeAll() {
	for _, k := range c.places {
		k.brings(0)
	}
	c.wake()
}
