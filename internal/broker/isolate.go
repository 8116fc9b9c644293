// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/sas"
)

// canName reports whether clients can name a namespace so.
func (b *Broker) canName(name string) bool {
	s := b.setups.Load()
	return validNamespaceName(name) && (b.cfg.Isolate || s.has(name) || key(name) == key(s.defaultName))
}

// hasHomes reports whether there are namespaces to be named.
func (b *Broker) hasHomes() bool { return b.cfg.Isolate || len(b.setups.Load().byKey) > 1 }

// defaultKeyName is the key that every namespace of Service Bus comes with, and
// that every example uses. It names no namespace.
const defaultKeyName = "RootManageSharedAccessKey"

// A home is the namespace that a client names, as far as it has named one: by the name of its key,
// or by the host of its connection. Some SDKs give the key's name with SASL (JavaScript), and all
// give it with a token. The key counts for more: with every SDK, it is the one that a test can
// choose without a name server.
type home struct {
	key, host string
	settled   bool // links lead into it: what is named later does not count
}

func (h *home) begin(b *Broker, peer *server.Conn) {
	h.host = b.homeOfHost(peer.Hostname())
	h.key = b.homeOfKey(keyNameOf(peer.SASL()))
}

func (h *home) name() string { return cmp.Or(h.key, h.host) }

// keyNameOf returns what a client calls itself by SASL.
func keyNameOf(mechanism amqp.Symbol, response []byte) string {
	parts := bytes.Split(response, []byte{0})
	if mechanism == plain && len(parts) == 3 || mechanism == "ANONYMOUS" && len(parts) == 2 && len(parts[0]) == 0 {
		return string(parts[1])
	}
	return ""
}

// namespaceBy returns the namespace of a connection on which token is put.
func (a *access) namespaceBy(token string) *Namespace {
	a.mu.Lock()
	if a.home.key == "" && !a.home.settled {
		a.home.key = a.b.homeOfToken(token)
	}
	name := a.home.name()
	a.mu.Unlock()
	return a.b.Namespace(name)
}

// settle decides for a namespace, now that a link is to lead into it.
func (c *conn) settle() {
	c.access.mu.Lock()
	was, name := c.access.home.settled, c.access.home.name()
	c.access.home.settled = true
	c.access.mu.Unlock()
	if !was {
		c.ns = c.b.Namespace(name)
	}
}

// NamespaceOf returns the namespace that a request over HTTP is for: that which
// the key of its token names, else that of the host. Where there are keys, a
// request that is not signed with one of them makes no namespace; it gets the
// default one, which will not let it in either.
func (b *Broker) NamespaceOf(host, authorization string) *Namespace {
	name := cmp.Or(b.homeOfToken(authorization), b.homeOfHost(host))
	if b.Secured() && !b.exists(name) && !b.signed(authorization) {
		return b.Default()
	}
	n := b.Namespace(name)
	n.host.last.Store(&host)
	return n
}

func (b *Broker) exists(name string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.spaces[key(namespaceName(name))] != nil
}

// signed reports whether a token is good for some namespace.
func (b *Broker) signed(token string) bool {
	if t, err := sas.Parse(token); err == nil {
		return signedWith(t, *b.keys.Load()) != nil && !t.Expired(time.Now())
	}
	return b.cfg.AcceptJWT
}

// homeOfToken is the namespace that a token names, "" for none.
func (b *Broker) homeOfToken(token string) string {
	if !b.hasHomes() {
		return ""
	}
	t, err := sas.Parse(token)
	if err != nil {
		return "" // whether that matters is not decided here
	}
	return b.homeOfKey(t.KeyName)
}

// homeOfKey is the namespace that the name of a key means, "" for none. Where
// there are keys, their names are theirs. It may be any text, such as the name
// of a test: what is refused here would silently be shared.
func (b *Broker) homeOfKey(name string) string {
	isOwn := b.Secured() || strings.EqualFold(name, defaultKeyName)
	if isOwn || !validNamespaceName(name) || !b.canName(namespaceName(name)) {
		return ""
	}
	return name
}

// namespaceName is what a client means that names a namespace. In a token the Python SDK encodes
// the name of its key twice, and the Go SDK encodes a space as a plus sign. The JavaScript SDK
// gives the name as it is. All of them mean one namespace.
func namespaceName(name string) string {
	if plain, err := url.QueryUnescape(name); err == nil {
		return plain
	}
	return name
}

// validNamespaceName reports whether clients may make a namespace of that name.
func validNamespaceName(name string) bool {
	return name != "" && len(name) <= maxNamespaceName && utf8.ValidString(name) && strings.IndexFunc(name, unicode.IsControl) < 0
}

// homeOfHost is the first label of a host name that has several: orders for
// orders.localhost:5672, "" for localhost and for addresses. A namespace of the
// configuration can be all of a host name, as that of a container is.
func (b *Broker) homeOfHost(host string) string {
	if !b.hasHomes() {
		return ""
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	label, rest, _ := strings.Cut(host, ".")
	isAddress := net.ParseIP(strings.Trim(host, "[]")) != nil
	switch s := b.setups.Load(); {
	case isAddress || !validShortName(label) || !b.canName(label):
		return ""
	case rest == "" && !s.has(label) && key(label) != key(s.defaultName):
		return ""
	}
	return label
}
