// SPDX-License-Identifier: Apache-2.0

// Package httpclient makes HTTP clients that follow no redirect. A server that receives an alert
// must not direct this process to other hosts, which that server itself may be unable to reach.
//
// Libraries make clients of their own. Those without a transport of their own share
// [http.DefaultTransport], which refuses redirects as well once a program imports this package.
package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A RedirectError is the error of a request that was answered with a redirect.
type RedirectError struct {
	Host   string // that answered, with its port if it was given
	Status string // as answered, such as "307 Temporary Redirect"
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s answered %s, and redirects are never followed; give the address that it leads to, if it can be trusted", e.Host, e.Status)
}

// ParseURL reads the URL of a server, which may hold a secret: the error shows nothing of it.
func ParseURL(text string) (*url.URL, error) {
	if strings.Contains(text, "${") {
		return nil, errors.New("the URL refers to a variable as ${…}, which is not replaced; write the value itself")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("the value is not a URL; write one like https://example.com/hook")
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil && u.Port() != "" {
		return nil, errors.New("the URL has a port above 65535")
	}
	return u, nil
}

// New makes a client. A nil transport means [Transport]; timeout 0 means none. A redirect with a
// Location is a [RedirectError], wrapped in the client's [url.Error]. One without is an ordinary
// response.
func New(transport http.RoundTripper, timeout time.Duration) *http.Client {
	if transport == nil {
		transport = Transport()
	}
	return &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: Refuse}
}

// GetAdmin asks the process with the admin port addr, host:port. The port is on this machine: a proxy
// from the environment could not reach it.
func GetAdmin(ctx context.Context, addr, path string, timeout time.Duration) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the process on listen.admin: %w", err)
	}
	resp, err := New(&http.Transport{DisableKeepAlives: true}, timeout).Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("nothing answers on listen.admin, %s: %w", addr, failed.Err)
	}
	return resp, err
}

// Refuse is a CheckRedirect that refuses every redirect with a [RedirectError].
func Refuse(next *http.Request, _ []*http.Request) error { return refusal(next) }

// Transport returns a copy of the default transport, with its proxies and a connection pool of its
// own.
func Transport() *http.Transport { return defaultTransport().Clone() }

func defaultTransport() *http.Transport { return http.DefaultTransport.(*http.Transport) }

// refusal returns a RedirectError if a request follows a redirect. Clients note that on the
// request.
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

// The default transport calls its Proxy function before it opens or reuses a connection. Refusing
// there covers every client without a transport of its own, and keeps the type that libraries
// expect.
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
