// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Bounds of the headers of a configuration.
const (
	maxHeaders     = 32
	maxHeaderName  = 100     // bytes
	maxHeaderValue = 8 << 10 // bytes
)

// ownHeaders are set by this package or by the client, and Webhook-* as well.
var ownHeaders = []string{"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// header returns the headers of each request. Its errors show no value. They are of the type
// [SettingError], with a key of the configuration.
func (c *HTTP) header() (http.Header, error) {
	h := http.Header{}
	wrong := func(key, format string, args ...any) (http.Header, error) {
		return nil, &SettingError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	if len(c.Headers) > maxHeaders {
		return wrong("headers", "there are %d headers; give %d at most", len(c.Headers), maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value, key := c.Headers[name], http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || len(name) > maxHeaderName:
			return wrong("headers", "%.60q is not the name of a header", name)
		case slices.Contains(ownHeaders, key) || strings.HasPrefix(key, "Webhook-"):
			return wrong("headers", "Overdue sets %s itself; remove it", key)
		case h[key] != nil:
			return wrong("headers", "%s is there twice; keep one", key)
		case value == "" || len(value) > maxHeaderValue:
			return wrong("headers", "the value of %s has %d bytes; give 1 to %d", key, len(value), maxHeaderValue)
		case !httpguts.ValidHeaderFieldValue(value):
			return wrong("headers", "the value of %s has a control character; remove it", key)
		}
		h.Set(key, value)
	}
	switch taken := h.Get("Authorization") != ""; {
	case c.BearerToken != "":
		if taken || c.Username != "" {
			return wrong("bearerToken", "there is a username or a header Authorization as well; keep one of them")
		}
		if strings.ContainsFunc(c.BearerToken, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return wrong("bearerToken", "the token has a space, a line end or another character that a token cannot have")
		}
		h.Set("Authorization", "Bearer "+c.BearerToken)
	case c.Username != "":
		if taken {
			return wrong("username", "there is a header Authorization as well; keep one of them")
		}
		if strings.Contains(c.Username, ":") {
			return wrong("username", "it has a colon, which basic authentication cannot send")
		}
		(&http.Request{Header: h}).SetBasicAuth(c.Username, c.Password)
	}
	return h, nil
}

// secretsOf returns the parts of a request to u that may be secret, which the answer may repeat.
func (c *HTTP) secretsOf(u *url.URL, h http.Header) []string {
	secrets := slices.Concat(secretsOf(u, c.URL), []string{c.BearerToken, c.Password}, c.SigningSecrets)
	for _, values := range h {
		secrets = append(secrets, values...)
	}
	return append(secrets, strings.TrimPrefix(h.Get("Authorization"), "Basic "))
}

// secretsOf returns every part of a URL that may be a secret, but for its host.
func secretsOf(u *url.URL, raw string) []string {
	parts := []string{raw, u.User.String(), u.User.Username(), u.Path, u.EscapedPath(), u.RequestURI(), u.RawQuery}
	if password, ok := u.User.Password(); ok {
		parts = append(parts, password)
	}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	return parts
}

// hiding replaces secrets, the longest first. Shorter ones than four bytes would hide ordinary text.
func hiding(secrets []string) *strings.Replacer {
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 4 })
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range secrets {
		pairs = append(pairs, secret, "(hidden)")
		if escaped := url.QueryEscape(secret); escaped != secret {
			pairs = append(pairs, escaped, "(hidden)")
		}
	}
	return strings.NewReplacer(pairs...)
}
