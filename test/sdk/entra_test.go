// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A staticCredential is that of an app that signs in with Entra ID. Its token is for Service Bus,
// whatever the endpoint is.
type staticCredential struct{ t *testing.T }

func (c staticCredential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if want := []string{"https://servicebus.azure.net//.default"}; !slices.Equal(o.Scopes, want) {
		c.t.Errorf("the token is for %q, want %q", o.Scopes, want)
	}
	return azcore.AccessToken{Token: "eyJhbGciOiJub25lIn0.e30.", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// entraClient is the client of an app that has the name of its namespace and a credential.
func entraClient(t *testing.T, ns *namespace) *azservicebus.Client {
	t.Helper()
	authority, err := os.ReadFile(ns.caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client, err := azservicebus.NewClient("contoso.servicebus.windows.net", staticCredential{t}, &azservicebus.ClientOptions{
		CustomEndpoint: ns.secure,
		TLSConfig:      &tls.Config{RootCAs: roots, ServerName: "localhost"},
		RetryOptions:   azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) }) // the server goes next
	return client
}

// The other SDKs have this as the scenario entra.
func TestAnAppInGoThatSignsInWithEntraID(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and starts the program; not with -short")
	}
	program := buildBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	client := entraClient(t, newNamespace(t, program, "run", "client"))
	sender, err := client.NewSender(entraScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("a")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := completeAll(ctx, client, entraScenario, 1); err != nil {
		t.Fatal(err)
	}
	// A message that nobody receives is watched like any other.
	second := time.Second
	if err := sender.SendMessage(ctx, &azservicebus.Message{TimeToLive: &second}, nil); err != nil {
		t.Fatal(err)
	}
	letters, err := client.NewReceiverForQueue(entraScenario, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := letters.ReceiveMessages(ctx, 1, nil)
	if err != nil || *dead[0].DeadLetterReason != "TTLExpiredException" {
		t.Errorf("dead letters %v, %v, want one with TTLExpiredException", dead, err)
	}
}

// An endpoint with keys of its own cannot check the token.
func TestAnEndpointWithKeysRefusesATokenOfEntraID(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and starts the program; not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	sender, err := entraClient(t, newNamespace(t, buildBroker(t), "run", "own")).NewSender(entraScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	refusal := (*azservicebus.Error)(nil)
	if err := sender.SendMessage(ctx, &azservicebus.Message{}, nil); !errors.As(err, &refusal) || refusal.Code != azservicebus.CodeUnauthorizedAccess {
		t.Errorf("a send with a token of Entra ID = %v, want %s", err, azservicebus.CodeUnauthorizedAccess)
	}
}
