// SPDX-License-Identifier: Apache-2.0

// Package connect makes the clients of a Service Bus namespace: ours for links, that of the
// administration API, and the SDK's, which operators' commands use. It is the only one that imports
// azidentity.
package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sbadmin "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/listener/tlsrecord"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/namespace"
	"overdue/internal/version"
)

// DialTimeout bounds a dial, TLS included.
const DialTimeout = 10 * time.Second

// A Namespace is one that can be connected to.
type Namespace struct {
	*namespace.Namespace
	certificateEnd atomic.Pointer[time.Time] // nil: none was shown
}

// CertificateEnd returns when the certificate ends that the namespace showed last, trusted or not.
// It is zero before the first one.
func (n *Namespace) CertificateEnd() time.Time {
	if end := n.certificateEnd.Load(); end != nil {
		return *end
	}
	return time.Time{}
}

// Parse reads the name of a namespace or a connection string.
func Parse(text string) (*Namespace, error) {
	n, err := namespace.Parse(text)
	if err != nil {
		return nil, err
	}
	return &Namespace{Namespace: n}, nil
}

// Links makes the client of a namespace, which does not dial yet, and what proves to it who we are.
func (n *Namespace) Links() (*link.Namespace, link.TokenSource, error) {
	tokens, err := n.Tokens()
	if err != nil {
		return nil, nil, err
	}
	return n.LinksWith(tokens), tokens, nil
}

// LinksWith makes the client of a namespace with other credentials than its own.
func (n *Namespace) LinksWith(tokens link.TokenSource) *link.Namespace {
	return link.New(link.Config{
		Host:   n.Host,
		Plain:  n.Plain,
		Dial:   n.Open,
		Tokens: tokens,
	})
}

// Tokens makes what proves to the namespace who we are.
func (n *Namespace) Tokens() (link.TokenSource, error) {
	switch {
	case n.ConnectionString == "":
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("no Azure identity is available: %w", err)
		}
		return link.Credential(credential), nil
	case n.Signature != "":
		return link.Signature(n.Signature), nil
	}
	return link.SAS(n.KeyName, n.Key), nil
}

// SDK makes the SDK's client of a namespace, which does not dial yet, for operators who want to see
// what an app would.
func (n *Namespace) SDK() (*azservicebus.Client, error) {
	options := &azservicebus.ClientOptions{
		ApplicationID: "overdue/" + version.String(),
		// It may be any connection that AMQP can begin on.
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return n.Open(ctx) },
		// The defaults wait 4 s before the first retry and up to two minutes later on.
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 9, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond},
	}
	if n.ConnectionString == "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("no Azure identity is available: %w", err)
		}
		return azservicebus.NewClient(n.Host, credential, options)
	}
	client, err := azservicebus.NewClientFromConnectionString(n.ConnectionString, options)
	if err != nil {
		return nil, n.notAccepted()
	}
	return client, nil
}

// notAccepted is said instead of the SDK's error, which may quote what it could not read.
func (n *Namespace) notAccepted() error {
	return fmt.Errorf("the connection string for %s is not one that the Service Bus SDK accepts", n.Host)
}

// Administration is the SDK's client of the administration API, led to where api has it. It is for
// changes; what is read, is read by api.
func (n *Namespace) Administration(api *entities.Admin) (*sbadmin.Client, error) {
	options := &sbadmin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: ledTo{api}, Telemetry: policy.TelemetryOptions{ApplicationID: "overdue"},
	}}
	if n.ConnectionString == "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("no Azure identity is available: %w", err)
		}
		return sbadmin.NewClient(n.Host, credential, options)
	}
	client, err := sbadmin.NewClientFromConnectionString(n.ConnectionString, options)
	if err != nil {
		return nil, n.notAccepted()
	}
	return client, nil
}

// ledTo sends what a client means for HTTPS at the namespace to where its administration API has
// answered.
type ledTo struct{ api *entities.Admin }

func (l ledTo) Do(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(l.api.Endpoint())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	return entities.InOrder(r, l.api.Client.Do)
}

// SignInFailed reports that the machine's identity could not get a token.
func SignInFailed(err error) bool {
	var failed *azidentity.AuthenticationFailedError
	return errors.As(err, &failed)
}

// Open dials the namespace and does TLS where it has to.
func (n *Namespace) Open(ctx context.Context) (net.Conn, error) { return n.openAt(ctx, n.DialAddress) }

// OpenHTTP is open for the namespace's HTTP endpoint. Where a port is given, it is there for
// everything, as that of `overdue broker` is.
func (n *Namespace) OpenHTTP(ctx context.Context) (net.Conn, error) {
	if _, _, err := net.SplitHostPort(n.Host); err == nil || n.Plain {
		return n.openAt(ctx, n.DialAddress)
	}
	return n.openAt(ctx, net.JoinHostPort(n.Host, "443"))
}

func (n *Namespace) openAt(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if n.Plain || err != nil {
		return nc, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	c := tls.Client(tlsrecord.Whole(nc), &tls.Config{ServerName: host, DynamicRecordSizingDisabled: true}) // as the endpoints have it
	err = c.HandshakeContext(ctx)
	n.noteCertificate(c.ConnectionState().PeerCertificates, err)
	if err != nil {
		_ = nc.Close() // the end of ctx has closed it
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer to the TLS handshake: %w", err)
		}
		return nil, err
	}
	return c, nil
}

// noteCertificate remembers the end of the certificate that the namespace has shown. One that is
// refused stands in the error alone.
func (n *Namespace) noteCertificate(shown []*x509.Certificate, err error) {
	if refused := (*tls.CertificateVerificationError)(nil); errors.As(err, &refused) {
		shown = refused.UnverifiedCertificates
	}
	if len(shown) > 0 {
		n.certificateEnd.Store(&shown[0].NotAfter)
	}
}
