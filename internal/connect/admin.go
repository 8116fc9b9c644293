// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"

	"overdue/internal/config"
	"overdue/internal/httpclient"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/version"
)

// emulatorAdminPort is where the official emulator has its administration API. Others have it at
// the port that they have for AMQP.
const emulatorAdminPort = "5300"

// adminEndpoints are where the administration API of a namespace may be. taken are addresses of
// this process, where it cannot be.
func (n *Namespace) adminEndpoints(taken ...string) []string {
	host, port, err := net.SplitHostPort(n.Host)
	if err != nil {
		host, port = n.Host, ""
	}
	scheme, ports := "https", []string{"443"}
	if n.Plain {
		scheme, ports = "http", []string{emulatorAdminPort}
	}
	if port != "" && port != ports[0] {
		ports = []string{port, ports[0]}
	}
	var all []string
	for _, p := range ports {
		at := net.JoinHostPort(host, p)
		if !slices.ContainsFunc(taken, func(t string) bool { return sameAddress(t, at) }) {
			all = append(all, scheme+"://"+at)
		}
	}
	return all
}

// sameAddress reports whether a listener of this machine answers at an address.
func sameAddress(listener, addr string) bool {
	lh, lp, err := net.SplitHostPort(listener)
	if err != nil {
		return false
	}
	h, p, err := net.SplitHostPort(addr)
	if err != nil || lp != p {
		return false
	}
	return h == lh || config.OnLoopback(h) && (config.OnLoopback(lh) || net.ParseIP(lh).IsUnspecified())
}

// AdminAPI is the administration API of a namespace. It has no endpoint where the only ones that it
// could have are taken.
func AdminAPI(c *config.Config, ns *Namespace, tokens link.TokenSource, taken ...string) (*entities.Admin, error) {
	endpoints := ns.adminEndpoints(taken...)
	if text := c.AdminURL; text != "" {
		u, err := url.Parse(text)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
			return nil, &config.Error{Err: fmt.Errorf("%s is not of the form https://host:port", c.At("namespaceAdmin"))}
		}
		if u.Scheme == "http" && !ns.Plain && !config.OnLoopback(u.Hostname()) {
			return nil, &config.Error{Err: fmt.Errorf("%s is not HTTPS, and tokens would be sent over the network in the clear", c.At("namespaceAdmin"))}
		}
		endpoints = []string{u.Scheme + "://" + u.Host}
	}
	transport := httpclient.Transport()
	transport.DialContext = (&net.Dialer{Timeout: DialTimeout / 2}).DialContext
	transport.TLSHandshakeTimeout = DialTimeout / 2
	client := httpclient.New(transport, 0) // a token is only for the host that was asked
	return &entities.Admin{
		Endpoints: endpoints, Client: client, UserAgent: "overdue/" + version.String(),
		Authorize: func(ctx context.Context, audience string) (string, error) {
			t, err := tokens.Token(ctx, audience)
			return t.Value, err
		},
	}, nil
}
