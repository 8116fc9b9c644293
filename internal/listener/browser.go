// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// fromElsewhere reports whether a page of another machine made a browser send r. A request that
// changes something carries the Origin of the page. A plain read carries none if the page's own
// name resolves to this machine (DNS rebinding). In that case Host has that name, on loopback and
// without TLS, since no certificate has that name. Names without a dot are local.
func fromElsewhere(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err != nil || !isLocal(u.Hostname())
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.TLS != nil {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	return strings.Contains(host, ".") && !isLocal(host)
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
