// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// fromElsewhere reports whether a page that did not come from this machine has
// made a browser send r. What the page changes or sends has its Origin. What it
// merely reads has none, when a name of its own has been made to lead here: that
// shows in the name, on loopback and without TLS, whose certificate no such name
// has. Names without a dot are of the local network.
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
