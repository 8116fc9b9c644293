// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"time"
)

// Token types of Service Bus.
const (
	TokenSAS = "servicebus.windows.net:sastoken"
	TokenJWT = "jwt"
)

// A Token authenticates the relay to upstream, for one audience.
type Token struct {
	Text    string
	Type    string    // TokenSAS or TokenJWT
	Expires time.Time // zero: unknown; the token is put once and not renewed
}

// String shows nothing of the token.
func (t Token) String() string { return "token of type " + t.Type }

// GoString omits the token.
func (t Token) GoString() string { return t.String() }

// Credentials are a client's name and password in SASL PLAIN, or a token put for an audience.
// With the other SASL mechanisms clients put tokens.
type Credentials struct {
	Username, Password string // of SASL PLAIN

	Audience  string // that a token was put for; "" with SASL
	Token     string
	TokenType string // as the client named it

	RemoteAddr net.Addr
}

// String shows nothing of the credentials.
func (Credentials) String() string { return "credentials" }

// GoString omits the credentials.
func (Credentials) GoString() string { return "credentials" }
