// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"time"

	"overdue/internal/servicebus/sas"
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

// sasLifetime is the lifetime of tokens that the relay signs. The SDKs sign for an hour as well.
const sasLifetime = time.Hour

// SAS signs tokens with a shared access key, for Config.Tokens.
func SAS(keyName, key string) func(context.Context, string) (Token, error) {
	return func(_ context.Context, audience string) (Token, error) {
		expires := time.Now().Add(sasLifetime).Truncate(time.Second)
		return Token{Text: sas.Make(keyName, key, audience, expires), Type: TokenSAS, Expires: expires}, nil
	}
}

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
