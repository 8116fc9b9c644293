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
