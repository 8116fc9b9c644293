// SPDX-License-Identifier: Apache-2.0

// Package namespace reads what names a namespace of Service Bus: its host, or a connection string.
// It is the one parser of both, for the configuration and for the clients.
package namespace

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Namespace is where one is and how to prove who we are. It holds secrets: nothing but Host may
// be shown.
type Namespace struct {
	Host        string // fully qualified, with the port if one was given
	DialAddress string // host:port of its AMQP endpoint
	// Plain means AMQP without TLS, as emulators and the embedded broker speak it.
	Plain bool

	// One of three: a key, a signature that somebody made with one, or (both empty) the
	// Azure identity of the machine.
	KeyName, Key     string
	Signature        string
	ConnectionString string // of these, for the SDK; "" with the identity
}

// Parse reads the name of a namespace or a connection string. Its errors
// name keys and never show a value.
func Parse(text string) (*Namespace, error) {
	text = strings.TrimSpace(text)
	if why := TextFault(text); why != "" {
		return nil, fmt.Errorf("the value %s", why)
	}
	if strings.Contains(text, "=") {
		return parseConnectionString(text)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(text, "sb://"), "/")
	if isHostName(host) && !strings.Contains(host, ".") {
		return nil, fmt.Errorf("%.60q is not a fully qualified name; write %.60s.servicebus.windows.net, or a connection string", host, host)
	}
	if !isHostName(host) {
		// Any other text may be half of a connection string, and so a secret.
		return nil, errors.New("the value is neither the name of a namespace, such as contoso.servicebus.windows.net, nor a connection string")
	}
	return &Namespace{Host: host, DialAddress: net.JoinHostPort(host, "5671")}, nil
}

// hostName is a DNS name or an IPv4 address; only a dial shows whether it exists.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

const maxHostName = 253

func isHostName(s string) bool { return len(s) <= maxHostName && hostName.MatchString(s) }

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || u.Scheme != "sb" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the Endpoint of the connection string is not of the form sb://host/")
	}
	return u, nil
}

// variableInFront is a line of a file of variables instead of the value.
var variableInFront = regexp.MustCompile(`(?i)^[A-Z_ ]+=\s*endpoint\s*=`)

// parseConnectionString reads what the portal shows, and makes of it what the SDK gets, so that
// nothing is read in two ways. Keys that it does not know have no effect; keys that would lead the
// SDK astray are errors.
func parseConnectionString(text string) (*Namespace, error) {
	parts := map[string]string{}
	for i, part := range strings.Split(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("part %d of the connection string is not key=value", i+1)
		}
		key = strings.ToLower(strings.TrimSpace(key))
		if _, twice := parts[key]; twice {
			return nil, fmt.Errorf("part %d of the connection string repeats a key", i+1)
		}
		if parts[key] = strings.TrimSpace(value); TextFault(parts[key]) != "" {
			return nil, fmt.Errorf("the value of part %d of the connection string %s", i+1, TextFault(parts[key]))
		}
	}
	n := &Namespace{
		KeyName: parts["sharedaccesskeyname"], Key: parts["sharedaccesskey"],
		Signature: parts["sharedaccesssignature"],
	}
	if _, ok := parts["endpoint"]; !ok {
		if variableInFront.MatchString(text) {
			return nil, errors.New("the value has a name and = before Endpoint=; remove both")
		}
		return nil, errors.New("the connection string lacks Endpoint=sb://…; copy it whole")
	}
	u, err := parseEndpoint(parts["endpoint"])
	if err != nil {
		return nil, err
	}
	switch {
	case parts["entitypath"] != "":
		return nil, errors.New("the connection string is for one entity (EntityPath); take one for the whole namespace, because the monitor queue is in it too")
	case n.Signature == "" && (n.KeyName == "" || n.Key == ""):
		return nil, errors.New("the connection string lacks SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature; copy it whole")
	case n.Signature != "" && n.Key != "":
		return nil, errors.New("the connection string has both SharedAccessKey and SharedAccessSignature; keep one")
	}
	if flag, given := parts["usedevelopmentemulator"]; given {
		if n.Plain, err = strconv.ParseBool(flag); err != nil {
			return nil, errors.New("UseDevelopmentEmulator in the connection string is neither true nor false")
		}
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "5672", false: "5671"}[n.Plain]
	}
	n.Host, n.DialAddress = u.Host, net.JoinHostPort(u.Hostname(), port)
	n.ConnectionString = "Endpoint=sb://" + u.Host
	if n.Signature != "" {
		n.ConnectionString += ";SharedAccessSignature=" + n.Signature
	} else {
		n.ConnectionString += ";SharedAccessKeyName=" + n.KeyName + ";SharedAccessKey=" + n.Key
	}
	if n.Plain {
		n.ConnectionString += ";UseDevelopmentEmulator=true"
	}
	return n, nil
}

// EncodingFault says how a text was saved that is not plain UTF-8; "" = it is.
func EncodingFault(text string) string {
	switch {
	case strings.HasPrefix(text, "\ufeff"):
		return "begins with a byte order mark, as PowerShell and some editors write it; save it as UTF-8 without one"
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		return "is not UTF-8, but perhaps UTF-16, as PowerShell writes it; save it as UTF-8 without a byte order mark"
	}
	return ""
}

// Reference is a variable as shells, Compose and other programs write it in their files.
var Reference = regexp.MustCompile(`\$\{[A-Za-z_][^{}]*\}`)

// ReferenceFault says what is wrong with a value that has a Reference, and so stands as it is
// written.
const ReferenceFault = "refers to a variable as ${…}, which is not replaced; write the value itself"

// TextFault says what stands around or in a text of one line that is none of its own; "" = nothing.
func TextFault(text string) string {
	quote := func(r rune) bool { return strings.ContainsRune("\"'`“”‘’", r) }
	hidden := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.IsSpace(r) && r != ' '
	}
	switch at := strings.IndexFunc(text, hidden); {
	case EncodingFault(text) != "":
		return EncodingFault(text)
	case strings.TrimFunc(text, quote) != text:
		return "has quotes around it, which docker --env-file and files keep; remove them"
	case Reference.MatchString(text):
		return ReferenceFault
	case strings.ContainsAny(text, "\r\n"):
		return "has a line break in it; put it on one line"
	case at >= 0:
		return fmt.Sprintf("has an invisible character after %d others; copy it again, or remove that", utf8.RuneCountInString(text[:at]))
	}
	return ""
}
