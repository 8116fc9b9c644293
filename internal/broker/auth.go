// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

func (r *AuthorizationRule) claims() (c sas.Rights) {
	if r.Manage {
		return sas.All
	}
	if r.Send {
		c |= sas.Send
	}
	if r.Listen {
		c |= sas.Listen
	}
	return c
}

// checkKeys returns what is wrong with the rules of a namespace, all of it, and
// nothing of a key.
func checkKeys(rules []AuthorizationRule) error {
	var errs []error
	taken := map[string]bool{}
	for _, r := range rules {
		switch {
		case r.KeyName == "":
			errs = append(errs, errors.New("broker: a key has no name"))
		case taken[key(r.KeyName)]:
			errs = append(errs, fmt.Errorf("broker: there are two keys named %.260q", r.KeyName))
		case r.PrimaryKey == "":
			errs = append(errs, fmt.Errorf("broker: the key %.260q is empty", r.KeyName))
		case r.claims() == 0:
			errs = append(errs, fmt.Errorf("broker: the key %.260q has none of the claims Send, Listen and Manage", r.KeyName))
		}
		taken[key(r.KeyName)] = true
	}
	return errors.Join(errs...)
}

// A grant is what a token has proven.
type grant struct {
	claims  sas.Rights
	expires time.Time // zero: never
	owner   string    // key of the queue or topic whose own rule it comes from; "": of the namespace
}

// opens reports whether g counts for what belongs to owner. The names of queues
// have slashes, so one may lie below another that it is no part of.
func (g grant) opens(owner string) bool { return g.owner == "" || g.owner == owner }

// ownerOf returns the key of the queue or topic that a path belongs to, be it
// that of a subscription, of its rules or of a list of either.
func ownerOf(path string) string {
	if a, err := address.OfPath(path); err == nil {
		return key(a.Name)
	}
	return key(address.TargetAt(path).Name)
}

func (g grant) holds(now time.Time) bool { return g.expires.IsZero() || now.Before(g.expires) }

// SetKeys replaces Config.Keys, but not whether there are any. A proof by a former key holds as
// long as the token, or the connection, of its client.
func (b *Broker) SetKeys(keys []AuthorizationRule) error {
	if (len(keys) == 0) == b.Secured() {
		return errors.New("broker: whether the broker asks for keys is decided when it is made")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	b.keys.Store(&keys)
	return nil
}

// Secured reports whether the broker has keys, so that clients need tokens.
func (b *Broker) Secured() bool { return len(b.cfg.Keys) > 0 }

// A Keyring judges tokens by the keys of a namespace and of its entities.
type Keyring struct {
	b        *Broker
	entities *entities
}

// judge says what a token is good for at path, the path of an entity or of a
// node of one; "" is the namespace. The rules that can have signed it are those
// of the namespace and those of the entity. The order of the checks is so that
// nothing is revealed about a token that was not signed with a key of ours. The
// error is a *sas.Refusal.
func (k *Keyring) judge(token, path string) (grant, error) {
	t, err := sas.Parse(token)
	if err != nil {
		return grant{}, sas.ErrMalformedToken
	}
	rule, owner := k.signer(t, path)
	switch {
	case rule == nil:
		return grant{}, sas.ErrInvalidSignature
	case t.Expired(time.Now()):
		return grant{}, sas.Expired(t.Expires)
	case !t.Covers(path):
		return grant{}, sas.ErrInvalidAudience
	}
	return grant{rule.claims(), t.Expires, owner}, nil
}

// signer returns the rule whose key has signed t, nil if there is none, and
// whose rule that is, see grant. A rule of an entity may have the name of one of
// the namespace.
func (k *Keyring) signer(t sas.Token, path string) (rule *AuthorizationRule, owner string) {
	if r := signedWith(t, *k.b.keys.Load()); r != nil {
		return r, ""
	}
	owner = ownerOf(path)
	if e := k.entities.find(owner); e != nil {
		return signedWith(t, e.common().rights), owner
	}
	return nil, ""
}

func signedWith(t sas.Token, rules []AuthorizationRule) *AuthorizationRule {
	for i := range rules {
		r := &rules[i]
		if strings.EqualFold(r.KeyName, t.KeyName) && (t.SignedWith(r.PrimaryKey) || t.SignedWith(r.SecondaryKey)) {
			return r
		}
	}
	return nil
}
