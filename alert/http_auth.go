// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Bounds of the headers of a configuration.
const (
	maxHeaders     = 32
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
		case !isToken(name):
			return wrong("headers", "%.60q is not the name of a header", name)
		case slices.Contains(ownHeaders, key) || strings.HasPrefix(key, "Webhook-"):
			return wrong("headers", "Overdue sets %s itself; remove it", key)
		case h[key] != nil:
			return wrong("headers", "%s is there twice; keep one", key)
		case value == "" || len(value) > maxHeaderValue:
			return wrong("headers", "the value of %s has %d bytes; give 1 to %d", key, len(value), maxHeaderValue)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
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
		h.Set("Authorization", "Basic "+basic(c.Username, c.Password))
	}
	return h, nil
}

func basic(username, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
}

// isToken reports whether a header can have the name (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// hideSecrets replaces the secrets of a request to u, which the answer may repeat.
func (c *HTTP) hideSecrets(u *url.URL) *strings.Replacer {
	secrets := append([]string{
		c.URL, u.Path, u.EscapedPath(), u.RequestURI(), u.RawQuery, u.User.String(), c.BearerToken, c.Password,
	}, c.SigningSecrets...)
	if c.Username != "" {
		secrets = append(secrets, basic(c.Username, c.Password))
	}
	for _, value := range c.Headers {
		secrets = append(secrets, value)
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	return hiding(secrets)
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
