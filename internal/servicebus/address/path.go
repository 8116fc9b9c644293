// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of Service Bus, in characters, all of which are ASCII here. Source:
// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas.
const (
	MaxName      = 260 // of a queue or topic
	MaxShortName = 50  // of a subscription or rule
	MaxID        = 128 // of a message-id, session-id or partition key, which need not be ASCII

	// maxHost bounds what stands between scheme and path: a name of DNS and a port.
	maxHost   = 260
	maxScheme = 32
	// maxPath bounds a path: a topic, a subscription, a rule, and what may stand around them.
	maxPath = MaxName + 2*MaxShortName + 64
)

// ErrNotPlain is wrapped by every error of this package: the text names nothing that there can be,
// or could be read in two ways.
var ErrNotPlain = errors.New("address: not plain")

// refusal is an error whose text is one sentence for the sender of the address.
type refusal struct{ text, why string }

func (e *refusal) Error() string { return fmt.Sprintf("%q %s", e.text, e.why) }

func (e *refusal) Unwrap() error { return ErrNotPlain }

// refuse quotes as much of text as a sentence bears.
func refuse(text, why string) error {
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	return &refusal{text, why}
}

// Plain returns the path of an address without scheme, host and the slash at either end, in the
// case that it has. It checks every segment for itself, not what they mean together; see Parse for
// that. "" is the namespace. Errors: ErrNotPlain.
func Plain(text string) (path string, err error) {
	path, err = afterHost(text)
	if err != nil {
		return "", err
	}
	return trimmed(text, path)
}

// afterHost cuts scheme and host off. Service Bus takes any scheme: the SDKs repeat that of the
// endpoint.
func afterHost(text string) (rest string, err error) {
	scheme, rest, isURI := strings.Cut(text, "://")
	if !isURI {
		return text, nil
	}
	if !isScheme(scheme) {
		return "", refuse(text, "has no plain scheme")
	}
	host, rest, _ := strings.Cut(rest, "/")
	if host == "" || len(host) > maxHost || strings.ContainsFunc(host, func(r rune) bool { return !isHost(r) }) {
		return "", refuse(text, "has no plain host behind its scheme")
	}
	return rest, nil
}

// trimmed is a path without the slash at either end, once each of its segments has been checked.
func trimmed(text, path string) (string, error) {
	if path == "" || path == "/" {
		return "", nil
	}
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if len(path) > maxPath {
		return "", refuse(text, fmt.Sprintf("has more than %d characters", maxPath))
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		why := fault(segment)
		if i == len(segments)-1 && isRule(segments) {
			why = OpaqueFault(segment)
		}
		if why != "" {
			return "", refuse(text, why)
		}
	}
	return path, nil
}

// isRule reports whether a path has the form of a rule's, topic/Subscriptions/name/Rules/name.
// Names of rules may have any characters but slashes.
func isRule(segments []string) bool {
	n := len(segments)
	return n >= 5 && strings.EqualFold(segments[n-2], rules) && strings.EqualFold(segments[n-4], subscriptions)
}

// OpaqueFault says what is wrong with a segment whose text is not the grammar's business: the name
// of a rule, or in a URL the id of a message. It must not change what the path around it means,
// however often it is unescaped or resolved. "" = nothing.
func OpaqueFault(segment string) string {
	switch {
	case segment == "":
		return "has an empty segment"
	case strings.Trim(segment, ".") == "":
		return "has a segment without a name"
	case !utf8.ValidString(segment):
		return "is not UTF-8"
	case strings.ContainsAny(segment, "/\\%?#"), strings.ContainsFunc(segment, unicode.IsControl):
		return "has a slash, a backslash, a percent sign, a question mark, a number sign or a control character within a segment"
	}
	return ""
}

// fault says what is wrong with a segment, "" where nothing is.
func fault(segment string) string {
	if segment == "" {
		return "has an empty segment"
	}
	name := strings.TrimPrefix(segment, "$")
	if strings.Trim(name, ".") == "" {
		return "has a segment without a name"
	}
	for i := range len(name) {
		switch c := name[i]; {
		case isAlphanumeric(c), c == '.', c == '-', c == '_', c == '~':
		case c == '%':
			return "has a percent sign"
		default:
			return "has a character that names do not have"
		}
	}
	return ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isScheme reports whether a text is a scheme, by RFC 3986, section 3.1.
func isScheme(text string) bool {
	return text != "" && len(text) <= maxScheme && !strings.ContainsRune("0123456789+-.", rune(text[0])) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return (r >= 0x80 || !isAlphanumeric(byte(r))) && !strings.ContainsRune("+-.", r)
		})
}

// isHost reports whether a host, with its port, may have the character. Brackets and colons are for
// addresses of IPv6.
func isHost(r rune) bool {
	return r < 0x80 && isAlphanumeric(byte(r)) || strings.ContainsRune(".-_:[]", r)
}

// Audience returns the path that a token is put for, as the request to $cbs names it: an address,
// with a query or without one. "" is the namespace. Errors: ErrNotPlain.
func Audience(text string) (path string, err error) {
	rest, err := afterHost(withoutQuery(text))
	if err != nil {
		return "", err
	}
	if rest, err = unescaped(text, rest); err != nil {
		return "", err
	}
	return trimmed(text, rest)
}

// Resource returns the path that a shared access signature is for. Without a scheme, what stands
// before its first slash is the host. The SDKs sign the URL that they call, so it may have a query,
// and escapes as in URLPath. Errors: ErrNotPlain.
func Resource(text string) (path string, err error) {
	if !strings.Contains(text, "://") {
		text = "sb://" + text
	}
	return Audience(text)
}

// withoutQuery cuts off what the SDKs sign with the URL that they call.
func withoutQuery(text string) string {
	text, _, _ = strings.Cut(text, "?")
	return text
}

// URLPath returns the path of a URL, given as it was sent (net/url: EscapedPath). Of the escapes
// it takes those of a slash and of a dollar sign, which SDKs send: Python escapes names whole. The
// name of a rule may have any. Errors: ErrNotPlain.
func URLPath(escaped string) (path string, err error) {
	rest, err := unescaped(escaped, escaped)
	if err != nil {
		return "", err
	}
	return trimmed(escaped, rest)
}

// unescaped undoes the escapes that are plain.
func unescaped(text, path string) (string, error) {
	if !strings.Contains(path, "%") {
		return path, nil
	}
	path = escapes.Replace(path)
	if segments := strings.Split(path, "/"); isRule(segments) {
		i := strings.LastIndexByte(path, '/')
		rule, err := url.PathUnescape(path[i+1:])
		if err != nil {
			return "", refuse(text, "has an escape that cannot be read")
		}
		if strings.Contains(path[:i], "%") || strings.Contains(rule, "/") {
			return "", refuse(text, "has an escape that is none of %2F and %24")
		}
		return path[:i+1] + rule, nil
	}
	if strings.Contains(path, "%") {
		return "", refuse(text, "has an escape that is none of %2F and %24")
	}
	return path, nil
}

var escapes = strings.NewReplacer("%2F", "/", "%2f", "/", "%24", "$")

// Below reports whether path is prefix or lies below it, compared without case and segment by
// segment: orders2 does not lie below orders. Both are plain paths; "" is the namespace.
func Below(path, prefix string) bool {
	switch {
	case prefix == "":
		return true
	case len(path) < len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix):
		return false
	}
	return len(path) == len(prefix) || path[len(prefix)] == '/'
}
