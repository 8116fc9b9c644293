// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strings"

	"overdue/internal/servicebus/address"
)

// A location is where a request has gone, as the client has written it.
type location struct {
	r      *http.Request
	target address.Target
}

// listed returns the path of an entry of a list, and a link to it from the list.
func (l location) listed(name string) (path, link string) {
	list, name := l.path(), escaped(name)
	if l.target.Name == "" { // queues and topics
		return "/" + name, strings.Repeat("../", strings.Count(list, "/")-1) + name
	}
	path = strings.TrimSuffix(list, "/") + "/" + name
	return path, path[strings.LastIndexByte(list, '/')+1:]
}

// path is the path of the URL as the client has written it, but for escapes that it needs not.
func (l location) path() string {
	path := "/" + escaped(l.target.Path)
	if len(path) > 1 && strings.HasSuffix(l.r.URL.Path, "/") {
		path += "/"
	}
	return path
}

func (l location) query() string {
	if l.r.URL.RawQuery == "" {
		return ""
	}
	return "?" + l.r.URL.RawQuery
}

func escaped(path string) string { return (&url.URL{Path: path}).EscapedPath() }

func (l location) scheme() string {
	if l.r.TLS != nil {
		return "https"
	}
	return "http"
}

// root is the URL of the namespace, without a slash at its end.
func (l location) root(scheme string) string { return scheme + "://" + cmp.Or(l.r.Host, "localhost") }

// isHere reports whether a path or URL leads to the host that the client asked. The port does not
// count, and neither does which name of its own machine a client uses.
func (l location) isHere(to string) bool {
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return true // a path; what is no address is refused elsewhere
	}
	asked := (&url.URL{Host: l.r.Host}).Hostname()
	return strings.EqualFold(u.Hostname(), asked) || isLoopback(u.Hostname()) && isLoopback(asked)
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// entityURL is what the service calls an entity.
func (l location) entityURL() string {
	return "The messaging entity 'sb://" + l.r.Host + "/" + l.target.Path + "'"
}

// parseTarget reads the path of a URL as it was sent: clients escape the slashes
// of a name, or do not. Errors: address.ErrNotPlain.
func parseTarget(escaped string) (address.Target, error) {
	path, err := address.URLPath(escaped)
	if err != nil {
		return address.Target{Path: escaped}, badRequest("The path %v.", err)
	}
	return address.TargetAt(path), nil
}
