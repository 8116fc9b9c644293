// SPDX-License-Identifier: Apache-2.0

package sas

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
)

// A Key lets those in who know it.
type Key struct {
	Name   string
	Value  string // as it stands in a connection string; an empty one lets nobody in
	Rights Rights
	Entity string // the key is good for what has this path and for what lies below it; "" = everything
}

// String shows the name alone.
func (k Key) String() string { return "key " + k.Name }

// GoString shows the name alone.
func (k Key) GoString() string { return k.String() }

// opens reports whether k is for what is at path.
func (k Key) opens(path string) bool {
	return k.Entity == "" || address.Below(path, strings.Trim(k.Entity, "/"))
}

// Keys are those of one endpoint. Several may have one name, as the primary and the
// secondary key of a rule do. Names are compared without case.
type Keys []Key

// A Grant is what somebody has proven to be allowed.
type Grant struct {
	Path    string // for what lies there and below, without slashes around it; "" = everything
	Rights  Rights
	Expires time.Time // zero: never
}

// Holds reports whether g counts at now for one of the rights.
func (g Grant) Holds(now time.Time, oneOf Rights) bool {
	return g.Rights&oneOf != 0 && (g.Expires.IsZero() || now.Before(g.Expires))
}

// Password judges a name and a key, as SASL PLAIN has them. The error is a
// *Refusal.
func (ks Keys) Password(name, key string) (Grant, error) {
	for _, k := range ks {
		if strings.EqualFold(k.Name, name) && SameKey(key, k.Value) {
			return Grant{strings.Trim(k.Entity, "/"), k.Rights, time.Time{}}, nil
		}
	}
	return Grant{}, ErrInvalidKey
}

// Token judges a shared access signature that is shown for what is at path, as
// package address returns it; "" is the namespace. The signature comes first, so
// that nothing is revealed about a token that was not signed with a key of ours. The
// error is a *Refusal.
func (ks Keys) Token(token, path string, now time.Time) (Grant, error) {
	if token == "" {
		return Grant{}, ErrMissingToken
	}
	if scheme, _, _ := strings.Cut(token, " "); !strings.EqualFold(scheme, Scheme) {
		return Grant{}, ErrNotSAS
	}
	t, err := Parse(token)
	if err != nil {
		return Grant{}, ErrMalformedToken
	}
	g := Grant{Path: path, Expires: t.Expires}
	for _, k := range ks {
		if strings.EqualFold(k.Name, t.KeyName) && t.SignedWith(k.Value) && k.opens(path) {
			g.Rights |= k.Rights
		}
	}
	switch {
	case g.Rights == 0:
		return Grant{}, ErrInvalidSignature
	case t.Expired(now):
		return Grant{}, Expired(t.Expires)
	case !t.Covers(path): // which nothing does for a path that is not plain
		return Grant{}, ErrInvalidAudience
	}
	return g, nil
}

// SameKey compares in a time that tells nothing, the length included. An empty key
// is none.
func SameKey(presented, key string) bool {
	a, b := sha256.Sum256([]byte(presented)), sha256.Sum256([]byte(key))
	return key != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
