// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"time"

	"overdue/internal/servicebus/sas"
)

// The types of token that Service Bus takes.
const (
	TokenSAS = "servicebus.windows.net:sastoken"
	TokenJWT = "jwt"
)

// A Token proves to upstream who the relay is, for one audience.
type Token struct {
	Text    string
	Type    string    // TokenSAS or TokenJWT
	Expires time.Time // zero: unknown; the token is put once and not renewed
}

// String shows nothing of the token.
func (t Token) String() string { return "token of type " + t.Type }

// GoString shows nothing of the token.
func (t Token) GoString() string { return t.String() }

// sasLifetime is how long the tokens hold that the relay signs itself. The SDKs
// sign for an hour as well.
const sasLifetime = time.Hour

// SAS signs tokens with a shared access key, for Config.Tokens.
func SAS(keyName, key string) func(context.Context, string) (Token, error) {
	return func(_ context.Context, audience string) (Token, error) {
		expires := time.Now().Add(sasLifetime).Truncate(time.Second)
		return Token{Text: sas.Make(keyName, key, audience, expires), Type: TokenSAS, Expires: expires}, nil
	}
}

// Credentials are what a client proves itself with: a name and a password by
// SASL PLAIN, or a token put for an audience. The other mechanisms of SASL say
// nothing; their clients put tokens.
type Credentials struct {
	Username, Password string // of SASL PLAIN

	Audience  string // that a token was put for; "" with SASL
	Token     string
	TokenType string // as the client named it

	RemoteAddr net.Addr
}

// String shows nothing of the credentials.
func (Credentials) String() string { return "credentials" }

// GoString shows nothing of the credentials.
func (Credentials) GoString() string { return "credentials" }
