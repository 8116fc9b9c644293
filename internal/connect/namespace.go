// SPDX-License-Identifier: Apache-2.0

// Package connect makes the clients of a Service Bus namespace: the SDK's, ours for links, and that
// of the administration API. It is the only one that imports azidentity.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sbadmin "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.uber.org/zap"

	"overdue/internal/listener/tlsrecord"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/namespace"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/version"
)

// DialTimeout bounds a dial, TLS included.
const DialTimeout = 10 * time.Second

// A Namespace is one that can be connected to.
type Namespace struct{ *namespace.Namespace }

// Parse reads the name of a namespace or a connection string.
func Parse(text string) (*Namespace, error) {
	n, err := namespace.Parse(text)
	if err != nil {
		return nil, err
	}
	return &Namespace{n}, nil
}

// Connect makes the two clients of a namespace, neither of which dials yet, and what proves
// to it who we are.
func (n *Namespace) Connect(log *zap.Logger) (*sdk.Client, *link.Namespace, link.TokenSource, error) {
	cfg := sdk.Config{Dial: n.Open, Renewed: func(why error) {
		log.Warn("namespace client renewed", zap.String("namespace", n.Host), zap.Error(why))
	}}
	links := link.Config{Host: n.Host, Plain: n.Plain, Dial: n.Open}
	if n.ConnectionString == "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("no Azure identity is available: %w", err)
		}
		links.Tokens = link.Credential(credential)
		cfg.Make = func(dial sdk.Dialer) (*azservicebus.Client, error) {
			return azservicebus.NewClient(n.Host, credential, clientOptions(dial))
		}
	} else {
		links.Tokens = link.SAS(n.KeyName, n.Key)
		if n.Signature != "" {
			links.Tokens = link.Signature(n.Signature)
		}
		cfg.Make = func(dial sdk.Dialer) (*azservicebus.Client, error) {
			return azservicebus.NewClientFromConnectionString(n.ConnectionString, clientOptions(dial))
		}
	}
	client, err := sdk.New(cfg)
	switch {
	case err == nil:
		return client, link.New(links), links.Tokens, nil
	case n.ConnectionString == "":
		return nil, nil, nil, fmt.Errorf("make a client for %s: %w", n.Host, err)
	}
	// The SDK may quote what it could not read.
	return nil, nil, nil, fmt.Errorf("the connection string for %s is not one that the Service Bus SDK accepts", n.Host)
}

func clientOptions(dial sdk.Dialer) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		ApplicationID:    "overdue/" + version.String(),
		NewWebSocketConn: dial, // which may be any connection that AMQP can begin on
		// The defaults wait 4 s before the first retry and up to two minutes later on: an app behind a
		// sidecar has given up by then. A companion that waits here when the line is back comes so much
		// too late.
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 9, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond},
	}
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
		// The SDK may quote what it could not read.
		return nil, fmt.Errorf("the connection string for %s is not one that the Service Bus SDK accepts", n.Host)
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
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}
