// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

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
