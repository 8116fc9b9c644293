// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// notProperties are the request headers that belong to HTTP, to the way of the request or
// to the API. Every other header is an application property. Priority (RFC 9218) is
// missing on purpose: the API's own documentation sends it as a property.
var notProperties = canonical(`
	Accept Accept-Charset Accept-Encoding Accept-Language Accept-Ranges Authorization
	BrokerProperties Cache-Control Connection Content-Disposition Content-Encoding
	Content-Language Content-Length Content-Location Content-Md5 Content-Range Content-Type
	Cookie Date Dnt Expect Forwarded From Host If-Match If-Modified-Since If-None-Match
	If-Range If-Unmodified-Since Keep-Alive Max-Forwards Origin Pragma Proxy-Authorization
	Proxy-Connection Range Referer ServiceBusAuthorization Te Trailer Transfer-Encoding Upgrade
	Upgrade-Insecure-Requests User-Agent Via Warning X-Ms-Retrypolicy X-Real-Ip`)

// canonical is the set of the names, as net/http spells them.
func canonical(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// notPropertyPrefixes are families of such headers.
var notPropertyPrefixes = []string{"Access-Control-", "Sec-", "X-Forwarded-"}

// CustomProperties reads the application properties from the headers of a request.
func CustomProperties(h http.Header) (map[string]any, error) {
	var properties map[string]any
	for header, values := range h {
		if !isProperty(header) {
			continue
		}
		v, ok := propertyValue(strings.Join(values, ", "))
		if !ok {
			return nil, BadRequest("The value of the HTTP header %s is not UTF-8.", Quoted(header))
		}
		if properties == nil {
			properties = make(map[string]any)
		}
		properties[propertyName(header)] = v
	}
	return properties, nil
}

func isProperty(header string) bool {
	if notProperties[header] {
		return false
	}
	for _, prefix := range notPropertyPrefixes {
		if strings.HasPrefix(header, prefix) {
			return false
		}
	}
	return true
}

// propertyName is the name of the property that a header carries, as far as its name tells
// when net/http has changed its case. For Overdue's own and CloudEvents' the case that they
// are defined with is known. KeepSpelling knows better.
func propertyName(header string) string {
	if strings.HasPrefix(header, "Overdue-") || strings.HasPrefix(header, "Ce-") {
		return strings.ToLower(header)
	}
	return header
}

// propertyValue reads the value of a property: a quoted string, a number, true or false, or a date.
// Any other value is taken as a string, as the examples of the API have it. A date in quotes is one
// when it is written as HTTP does, which is how the API itself writes it. The result ok is false
// when the value cannot be a string either.
func propertyValue(s string) (v any, ok bool) {
	if !utf8.ValidString(s) {
		return nil, false
	}
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		text := unquote(s[1 : len(s)-1])
		if t, err := time.Parse(http.TimeFormat, text); err == nil {
			return t.UTC(), true
		}
		return text, true
	}
	switch {
	case strings.EqualFold(s, "true"):
		return true, true
	case strings.EqualFold(s, "false"):
		return false, true
	}
	if n, ok := number(s); ok {
		return n, true
	}
	if t, ok := parseTime(s); ok {
		return t, true
	}
	return s, true
}

// unquote resolves the escapes of a quoted string. A backslash stands for the character behind it
// (RFC 9110, section 5.6.4). The exception is \u with four hexadecimal digits, by which AppendValue
// writes characters that a header cannot hold.
func unquote(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if code, err := strconv.ParseUint(s[i+1:min(i+5, len(s))], 16, 16); s[i] == 'u' && i+4 < len(s) && err == nil && (code < ' ' || code == 0x7f) {
				b.WriteByte(byte(code))
				i += 4
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// jsonNumber is stricter than strconv: a telephone or an article number with its leading
// plus or zeros is a string.
var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// number reads a decimal number as the smallest of int, long and double that holds it.
func number(s string) (any, bool) {
	if !jsonNumber.MatchString(s) {
		return nil, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return int32(n), true
		}
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
