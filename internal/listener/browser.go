// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// pages knows a request that a page of another origin made a browser send.
var pages http.CrossOriginProtection

// fromOtherPage reports whether a page of another origin made a browser send r. Pages of this
// machine may. A request with an Origin counts as one that changes something: a browser sends
// one to open a WebSocket, which is a GET.
func fromOtherPage(r *http.Request) bool {
	asked := *r
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err == nil && isLocal(u.Hostname()) {
			return false
		}
		asked.Method = http.MethodPost
	}
	return pages.Check(&asked) != nil
}

// mayRebind reports whether a page of another machine could have made a browser send r without an
// origin that says so. The page's own name would have to resolve to this machine (DNS rebinding). In
// that case Host has that name, and there is no TLS, since no certificate has it.
func (s *Server) mayRebind(r *http.Request) bool {
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok || r.TLS != nil {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower((&url.URL{Host: r.Host}).Hostname()), ".")
	return !isPrivateName(host) && !slices.ContainsFunc(s.names, func(name string) bool { return strings.EqualFold(name, host) })
}

// privateDomains are those that no public name server answers for. They are those of RFC 6761, 6762
// and 8375, one that ICANN keeps free for private use, and that of services in a cluster.
var privateDomains = []string{".localhost", ".local", ".test", ".home.arpa", ".internal", ".svc"}

// isPrivateName reports whether no stranger can have a name resolve to this machine. An address is
// not resolved. Names of one label are those of this machine, its network or its containers.
func isPrivateName(host string) bool {
	return !strings.Contains(host, ".") || net.ParseIP(host) != nil ||
		slices.ContainsFunc(privateDomains, func(domain string) bool { return strings.HasSuffix(host, domain) })
}

// ownNames are the further names by which clients may call this machine over HTTP.
func ownNames(configured []string) []string {
	if name, err := os.Hostname(); err == nil {
		return append([]string{name}, configured...)
	}
	return configured
}

// isLocal reports whether host can only be this machine.
func isLocal(host string) bool {
	host = strings.ToLower(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
