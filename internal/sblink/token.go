// SPDX-License-Identifier: Apache-2.0

package sblink

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Token is a claim to use one audience.
type Token struct {
	Value   string
	Type    string    // "servicebus.windows.net:sastoken" or "jwt"
	Expires time.Time // zero: it cannot be renewed and is used as long as it lasts
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

// Token signs lower(urlencode(audience)) and the expiry, as the service checks it.
func (k sasKey) Token(_ context.Context, audience string) (Token, error) {
	expires := time.Now().Add(sasLifetime).Truncate(time.Second)
	resource := strings.ToLower(url.QueryEscape(audience))
	mac := hmac.New(sha256.New, []byte(k.key))
	fmt.Fprintf(mac, "%s\n%d", resource, expires.Unix())
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	value := fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", resource, sig, expires.Unix(), k.name)
	return Token{Value: value, Type: typeSAS, Expires: expires}, nil
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
