// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// As many of the longest that there may be are no more than one answer may have (maxAnswer).
	scanMost  = 100
	deadPage  = 64
	glob      = `\*?[]^-`
	allOfThem = "*"
)

// Counts are how many items there are.
func (c *Companions) Counts(ctx context.Context) (all Counts, err error) {
	for _, k := range c.places {
		if err := c.do(ctx, func(ctx context.Context) error {
			waiting, leased, dead, err := count(ctx, c.s.client, k)
			all.Waiting, all.Leased, all.Dead = all.Waiting+waiting, all.Leased+leased, all.Dead+dead
			return err
		}); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Walk shows f the items that wait or are leased, in no order and some of them twice, until it has
// seen enough.
func (c *Companions) Walk(ctx context.Context, f func(Item) (more bool)) error {
	for _, k := range c.places {
		if more, err := c.walk(ctx, k, allOfThem, f); err != nil || !more {
			return err
		}
	}
	return nil
}

func (c *Companions) walk(ctx context.Context, k *place, match string, f func(Item) bool) (more bool, err error) {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var got []string
		if err := c.do(ctx, func(ctx context.Context) (err error) {
			got, cursor, err = scan(ctx, c.s.client, k, cursor, match, scanMost)
			return err
		}); err != nil {
			return false, err
		}
		for i := 0; i+1 < len(got); i += 2 {
			if !f(itemOf(k, got[i], got[i+1])) {
				return false, nil
			}
		}
	}
	return true, nil
}

// Notes shows f the notes whose ids begin so, some of them twice.
func (c *Companions) Notes(ctx context.Context, prefix string, f func(Item)) error {
	var match strings.Builder
	for _, r := range prefix {
		if strings.ContainsRune(glob, r) {
			match.WriteByte('\\')
		}
		match.WriteRune(r)
	}
	_, err := c.walk(ctx, c.places[len(c.places)-1], match.String()+"*", func(it Item) bool {
		f(it)
		return true
	})
	return err
}

// Dead shows f what could not be done, the latest of each place first, until it has seen enough.
func (c *Companions) Dead(ctx context.Context, f func(Dead) (more bool)) error {
	for _, k := range c.places {
		for from := int64(0); ; from += deadPage {
			var page []string
			if err := c.do(ctx, func(ctx context.Context) (err error) {
				page, err = deadOf(ctx, c.s.client, k, from, from+deadPage-1)
				return err
			}); err != nil {
				return err
			}
			for _, text := range page {
				var d Dead
				if err := json.Unmarshal([]byte(text), &d); err != nil {
					d = Dead{Reason: "unreadable", Description: "it is no JSON that we write"}
				}
				if !f(d) {
					return nil
				}
			}
			if len(page) < deadPage {
				break
			}
		}
	}
	return nil
}

// A Durability is what servers say of how long they keep what they were given.
type Durability struct {
	Evicts  string // the policy by which it forgets companions when its memory is full; "" = it refuses new ones
	Forgets bool   // it does not write what it takes to an append-only file: a server that ends forgets
	Failed  bool   // it could not write to that file the last time
}

var errInfo = errors.New("the server does not say how it keeps what it is given")

// Inspect asks how durable Redis is.
func (c *Companions) Inspect(ctx context.Context) (d Durability, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		all, err := infos(ctx, c.s.client)
		for _, text := range all {
			d.read(text)
		}
		if err == nil && len(all) == 0 {
			err = errInfo
		}
		return err
	})
	return d, err
}

// read takes in what INFO says of one server.
func (d *Durability) read(text string) {
	fields, s := infoFields(text), readInfo(text)
	if s.Memory > 0 && strings.HasPrefix(s.Eviction, "allkeys-") {
		d.Evicts = s.Eviction // the others evict nothing of ours: what we keep has no end
	}
	d.Forgets = d.Forgets || fields["aof_enabled"] != "1"
	d.Failed = d.Failed || fields["aof_enabled"] == "1" && fields["aof_last_write_status"] == "err"
}

// Problem is a sentence about what keeps companions from being kept, and whether nothing helps
// against it; "" where nothing does.
func (d Durability) Problem() (sentence string, hopeless bool) {
	switch {
	case d.Evicts != "":
		return fmt.Sprintf("redis forgets companions when its memory is full (maxmemory-policy %s); set it to noeviction", d.Evicts), true
	case d.Failed:
		return "redis cannot write its append-only file: companions are lost when it ends; check its disk", false
	case d.Forgets:
		return "redis has no append-only file: companions are lost when it ends; set appendonly yes, or the service's data persistence", false
	}
	return "", false
}

// Try tries what companions take, in a place of its own.
func (c *Companions) Try(ctx context.Context) error {
	k, id := c.s.place("trial"), rand.Text()
	return c.do(ctx, func(ctx context.Context) error {
		it := Item{ID: id, Due: time.UnixMilli(1)}
		err := keep(ctx, c.s.client, k, c.channel, []any{id, 1, record(&it, 1)})
		if err == nil {
			_, _, _, err = lease(ctx, c.s.client, k, 1, c.life, 10, claimBytes, c.token)
		}
		if err == nil {
			_, err = renew(ctx, c.s.client, k, c.token, c.life, []string{id})
		}
		if err == nil {
			err = handBack(ctx, c.s.client, k, c.channel, c.token, id, 1)
		}
		if err == nil {
			err = finish(ctx, c.s.client, k, 1, []any{id, ""})
		}
		return err
	})
}
