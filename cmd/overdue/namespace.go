// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// namespaceConfig is what the setting of that name says. It holds secrets: nothing but host
// may be shown.
type namespaceConfig struct {
	host string // fully qualified, with the port if one was given
	dial string // host:port of its AMQP endpoint
	// plain means AMQP without TLS, as emulators and the embedded broker speak it.
	plain bool

	// One of three: a key, a signature that somebody made with one, or (both empty) the
	// Azure identity of the machine.
	keyName, key     string
	signature        string
	connectionString string // "" with the identity
}

// parseNamespaceText reads the name of a namespace or a connection string. Its errors
// name keys and never show a value.
func parseNamespaceText(text string) (*namespaceConfig, error) {
	if text = strings.TrimSpace(text); strings.Contains(text, "=") {
		return parseConnectionString(text)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(text, "sb://"), "/")
	if hostName.MatchString(host) && !strings.Contains(host, ".") {
		return nil, fmt.Errorf("%q is not a fully qualified name; write %s.servicebus.windows.net, or a connection string", clip(host), clip(host))
	}
	if !hostName.MatchString(host) {
		// What is neither may be half of a connection string, and so a secret.
		return nil, errors.New("the value is neither the name of a namespace, such as contoso.servicebus.windows.net, nor a connection string")
	}
	return &namespaceConfig{host: host, dial: net.JoinHostPort(host, "5671")}, nil
}

// hostName is a DNS name or an IPv4 address; what of it exists, a dial will tell.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// parseConnectionString reads what the portal shows. Keys that it does not know are left
// to the SDK; keys that would lead it astray are errors.
func parseConnectionString(text string) (*namespaceConfig, error) {
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
		parts[key] = strings.TrimSpace(value)
	}
	n := &namespaceConfig{
		keyName: parts["sharedaccesskeyname"], key: parts["sharedaccesskey"],
		signature: parts["sharedaccesssignature"], connectionString: text,
	}
	endpoint, ok := parts["endpoint"]
	if !ok {
		return nil, errors.New("the connection string lacks Endpoint=sb://…; copy it whole")
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "sb" || u.Hostname() == "" || u.User != nil {
		return nil, errors.New("the Endpoint of the connection string is not of the form sb://host/")
	}
	switch {
	case parts["entitypath"] != "":
		return nil, errors.New("the connection string is for one entity (EntityPath); take one for the whole namespace, because the monitor queue is in it too")
	case n.signature == "" && (n.keyName == "" || n.key == ""):
		return nil, errors.New("the connection string lacks SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature; copy it whole")
	case n.signature != "" && n.key != "":
		return nil, errors.New("the connection string has both SharedAccessKey and SharedAccessSignature; keep one")
	}
	if flag, given := parts["usedevelopmentemulator"]; given {
		if n.plain, err = strconv.ParseBool(flag); err != nil {
			return nil, errors.New("UseDevelopmentEmulator in the connection string is neither true nor false")
		}
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "5672", false: "5671"}[n.plain]
	}
	n.host, n.dial = u.Host, net.JoinHostPort(u.Hostname(), port)
	return n, nil
}

// A broker without keys checks none; the SDKs only want one.
const (
	anyKeyName = "RootManageSharedAccessKey"
	anyKey     = "SAS_KEY_VALUE"
)

// connectionString is how a client reaches the embedded broker at addr, without TLS.
func connectionString(addr, keyName, key string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true;"
}
