// SPDX-License-Identifier: Apache-2.0

// Package httpclient makes the HTTP clients of this module, none of which follows a redirect. Whoever answers where an
// alert goes must not send this process on to other hosts: it may stand in a network that the one who answers cannot reach.
//
// Libraries make clients of their own. Those that have no transport of their own share [http.DefaultTransport], which refuses
// to be led elsewhere, too, once this package is part of a program.
package httpclient

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// A RedirectError says that an answer was a redirect, which makes a request fail.
type RedirectError struct {
	Host   string // that answered, with its port if it was given
	Status string // as answered, such as "307 Temporary Redirect"
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s answered %s, and redirects are never followed; give the address that it leads to, if it can be trusted", e.Host, e.Status)
}

// New makes a client. A nil transport is one of [Transport]; a timeout of 0 is none. A redirect that says where to is a
// [RedirectError], wrapped in the [url.Error] that the client returns. One that does not is an answer like any other.
func New(transport http.RoundTripper, timeout time.Duration) *http.Client {
	if transport == nil {
		transport = Transport()
	}
	return &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: Refuse}
}

// Refuse is what makes a client follow no redirect, as its CheckRedirect. It returns a [RedirectError].
func Refuse(next *http.Request, _ []*http.Request) error { return refusal(next) }

// Transport is a copy of the default transport, proxies of the environment and all, with connections of its own.
func Transport() *http.Transport { return defaultTransport().Clone() }

func defaultTransport() *http.Transport { return http.DefaultTransport.(*http.Transport) }

// refusal is a RedirectError if a request follows a redirect, which clients note on it.
func refusal(r *http.Request) error {
	if r.Response == nil {
		return nil
	}
	e := &RedirectError{Status: r.Response.Status}
	if asked := r.Response.Request; asked != nil {
		e.Host = asked.URL.Host
	}
	return e
}

// The function that chooses a proxy is asked before a connection is opened or taken. Through it all clients without a
// transport of their own are reached, and the default transport stays what libraries expect it to be.
func init() {
	t := defaultTransport()
	proxy := t.Proxy
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if err := refusal(r); err != nil {
			return nil, err
		}
		if proxy == nil {
			return nil, nil
		}
		return proxy(r)
	}
}
