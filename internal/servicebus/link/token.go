// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"overdue/internal/servicebus/sas"
)

// Token is a claim to use one audience.
type Token struct {
	Value   string
	Type    string    // "servicebus.windows.net:sastoken" or "jwt"
	Expires time.Time // zero: it cannot be renewed and is used as long as it lasts
}

// Authorization is the token as a header of that name has it.
func (t Token) Authorization() string {
	if t.Type == typeJWT {
		return "Bearer " + t.Value
	}
	return t.Value
}

// A TokenSource makes tokens for audiences such as amqps://contoso.servicebus.windows.net/orders.
type TokenSource interface {
	Token(ctx context.Context, audience string) (Token, error)
}

const (
	typeSAS = "servicebus.windows.net:sastoken"
	typeJWT = "jwt"

	sasLifetime = time.Hour
	// entraScope is what Service Bus asks a Microsoft Entra token to be made for.
	entraScope = "https://servicebus.azure.net/.default"
)

// SAS signs tokens with a shared access key.
func SAS(keyName, key string) TokenSource { return sasKey{keyName, key} }

type sasKey struct{ name, key string }

func (k sasKey) Token(_ context.Context, audience string) (Token, error) {
	expires := time.Now().Add(sasLifetime).Truncate(time.Second)
	return Token{Value: sas.Make(k.name, k.key, audience, expires), Type: typeSAS, Expires: expires}, nil
}

// Signature uses a shared access signature that somebody else made.
func Signature(value string) TokenSource { return signature(value) }

type signature string

func (s signature) Token(context.Context, string) (Token, error) {
	return Token{Value: string(s), Type: typeSAS}, nil
}

// Credential asks c for a token of Microsoft Entra.
func Credential(c azcore.TokenCredential) TokenSource { return credential{c} }

type credential struct{ azcore.TokenCredential }

func (c credential) Token(ctx context.Context, _ string) (Token, error) {
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{entraScope}})
	if err != nil {
		return Token{}, err
	}
	return Token{Value: t.Token, Type: typeJWT, Expires: t.ExpiresOn}, nil
}
