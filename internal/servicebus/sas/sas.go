// SPDX-License-Identifier: Apache-2.0

// Package sas makes and checks the shared access signatures of Service Bus:
//
//	SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>
//
// The signature is HMAC-SHA256, under the key as it is written. It covers the resource as it stands
// in the token, a line feed, and the expiry in seconds of Unix time. The resource is URL-encoded,
// and in lower case where its maker did that.
package sas

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/address"
)

// Scheme is the word that every token begins with, and the scheme of an
// Authorization header that carries one.
const Scheme = "SharedAccessSignature"

// maxToken bounds a token, in bytes. Service Bus takes a resource of 260
// characters below a host of 253, which encoding may triple.
const maxToken = 4096

// ErrMalformed is returned by Parse for what is no token.
var ErrMalformed = errors.New("sas: malformed token")

// Make signs a token for resource, a URI such as
// amqps://contoso.servicebus.windows.net/orders, that holds until expires, in
// whole seconds.
func Make(keyName, key, resource string, expires time.Time) string {
	sr := strings.ToLower(url.QueryEscape(resource))
	se := strconv.FormatInt(expires.Unix(), 10)
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(sign(key, sr, se)))
	skn := strings.ReplaceAll(url.QueryEscape(keyName), "+", "%20")
	return Scheme + " sr=" + sr + "&sig=" + sig + "&se=" + se + "&skn=" + skn
}

func sign(key, sr, se string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(sr + "\n" + se))
	return mac.Sum(nil)
}

// A Token is what a shared access signature says. Nothing of it may be believed
// before SignedWith.
type Token struct {
	Resource string    // a URI, decoded
	KeyName  string    // of the authorization rule whose key signed
	Expires  time.Time // UTC, whole seconds

	sr, se    string // as they were signed
	signature []byte
}

// Parse reads a token. Each of the four fields has to be there once, in any
// order, and nothing else. The error wraps ErrMalformed and shows nothing of
// the token.
func Parse(s string) (Token, error) {
	if len(s) > maxToken {
		return Token{}, fmt.Errorf("%w: %d bytes, %d is the most", ErrMalformed, len(s), maxToken)
	}
	scheme, rest, ok := strings.Cut(s, " ")
	if !ok || !strings.EqualFold(scheme, Scheme) {
		return Token{}, fmt.Errorf("%w: it does not begin with %q", ErrMalformed, Scheme+" ")
	}
	raw := map[string]string{"sr": "", "sig": "", "se": "", "skn": ""}
	for pair := range strings.SplitSeq(strings.TrimSpace(rest), "&") {
		name, value, _ := strings.Cut(pair, "=")
		name = strings.ToLower(name)
		if before, known := raw[name]; !known || before != "" || value == "" {
			return Token{}, fmt.Errorf("%w: a field is unknown, empty or repeated", ErrMalformed)
		}
		raw[name] = value
	}
	t := Token{sr: raw["sr"], se: raw["se"]}
	var errs [4]error
	t.Resource, errs[0] = unescape("sr", raw["sr"])
	t.KeyName, errs[1] = unescape("skn", raw["skn"])
	t.signature, errs[2] = parseSignature(raw["sig"])
	t.Expires, errs[3] = parseExpiry(raw["se"])
	if err := errors.Join(errs[:]...); err != nil {
		return Token{}, err
	}
	return t, nil
}

// unescape undoes URL-encoding. A plus sign stays: not every client encodes the
// one of base64, and nothing else has spaces.
func unescape(name, value string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("%w: no %s", ErrMalformed, name)
	}
	s, err := url.PathUnescape(value)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not URL-encoded", ErrMalformed, name)
	}
	return s, nil
}

func parseSignature(value string) ([]byte, error) {
	s, err := unescape("sig", value)
	if err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(sig) != sha256.Size {
		return nil, fmt.Errorf("%w: sig is not %d bytes in base64", ErrMalformed, sha256.Size)
	}
	return sig, nil
}

// parseExpiry reads seconds of Unix time, digits only: strconv would take a
// sign, too.
func parseExpiry(value string) (time.Time, error) {
	seconds, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: se is no number of seconds", ErrMalformed)
	}
	// Beyond the year 9999 times do not print; nobody means one.
	return time.Unix(int64(min(seconds, maxUnix)), 0).UTC(), nil
}

const maxUnix = 253402300799 // 9999-12-31T23:59:59Z

// SignedWith reports whether key made the signature. It takes the same time
// whatever the answer. An empty key signs nothing.
func (t Token) SignedWith(key string) bool {
	return key != "" && hmac.Equal(t.signature, sign(key, t.sr, t.se))
}

// Expired reports whether t no longer holds at now.
func (t Token) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// Covers reports whether t is for what lies at path below the namespace, the
// plain path of an entity or of a node of one; "" is the namespace itself. A token
// for a path is good for everything below it, and one for a resource that is not
// plain for nothing. Hosts are not compared: clients know a namespace by more
// names than it knows itself.
func (t Token) Covers(path string) bool {
	prefix, err := address.Resource(t.Resource)
	if plain, wrong := address.Plain(path); err != nil || wrong != nil || plain != path {
		return false
	}
	return address.Below(path, prefix)
}

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

// Rights are what a key lets its bearer do, one or several of them. In refusals
// the service calls them claims.
type Rights uint8

// The rights of Service Bus. A key for Manage has all three.
const (
	Send Rights = 1 << iota
	Listen
	Manage

	All = Send | Listen | Manage
)

// String names the rights as refusals do.
func (r Rights) String() string {
	var names []string
	for _, n := range []struct {
		right Rights
		name  string
	}{{Listen, "Listen"}, {Manage, "Manage"}, {Send, "Send"}} {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// A Refusal is why a token or a key is not good. Its text is that of the service:
// what stands before the colon people search for. It shows nothing of either.
type Refusal struct{ text string }

func (e *Refusal) Error() string { return e.text }

// The refusals that say nothing of the token at hand.
var (
	ErrMissingToken     = &Refusal{"MissingToken: The authorization header was not found."}
	ErrMalformedToken   = &Refusal{"MalformedToken: The credentials contained in the authorization header are not in the WRAP format."}
	ErrInvalidSignature = &Refusal{"InvalidSignature: The token has an invalid signature."}
	ErrInvalidAudience  = &Refusal{"InvalidAudience: The authorization header contains a token with a wrong audience."}
	ErrInvalidKey       = &Refusal{"InvalidKey: The name or the key is wrong."}
	ErrNotSAS           = &Refusal{"InvalidToken: Shared access signatures are taken here, not JSON Web Tokens."}
)

// Expired is the refusal of a token that held until at.
func Expired(at time.Time) *Refusal {
	return &Refusal{fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s'.", at.UTC().Format("2006-01-02 15:04:05Z"))}
}

// Missing is the refusal of a token that is good for something else than what is
// at path. The rights are those of which each alone would do.
func Missing(oneOf Rights, path string) *Refusal {
	return &Refusal{fmt.Sprintf("Unauthorized access. '%v' claim(s) are required to perform this operation. Resource: '/%.300s'.", oneOf, path)}
}
