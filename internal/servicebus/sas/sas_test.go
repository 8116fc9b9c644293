// SPDX-License-Identifier: Apache-2.0

package sas_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

const key = "c2VjcmV0IGtleSBvZiB0aGUgdGVzdA=="

var expires = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func parse(t *testing.T, s string) sas.Token {
	t.Helper()
	token, err := sas.Parse(s)
	if err != nil {
		t.Fatalf("Parse(%q) = %v", s, err)
	}
	return token
}

func TestWhatIsMadeIsRead(t *testing.T) {
	token := parse(t, sas.Make("Root Key+1", key, "amqps://Contoso.servicebus.windows.net/Orders", expires))
	if got, want := token.Resource, "amqps://contoso.servicebus.windows.net/orders"; got != want {
		t.Errorf("Resource = %q, want %q", got, want)
	}
	if got, want := token.KeyName, "Root Key+1"; got != want {
		t.Errorf("KeyName = %q, want %q", got, want)
	}
	if !token.Expires.Equal(expires) {
		t.Errorf("Expires = %v, want %v", token.Expires, expires)
	}
	for k, want := range map[string]bool{key: true, key + " ": false, "": false} {
		if got := token.SignedWith(k); got != want {
			t.Errorf("SignedWith(%q) = %v, want %v", k, got, want)
		}
	}
}

// The signatures were made with openssl, as the documentation shows it:
// printf '%s\n%s' "$sr" "$se" | openssl dgst -sha256 -hmac "$key" -binary | base64.
func TestSignaturesOfOthersAreRead(t *testing.T) {
	for name, token := range map[string]string{
		"lower case":           "SharedAccessSignature sr=sb%3a%2f%2flocalhost%2forders&sig=uV5OWt3YCGBBy%2F7MvPNdcFmG39naaOrpuFyu62cprFY%3D&se=1893553445&skn=k",
		"upper case, reversed": "SharedAccessSignature skn=k&se=1893553445&sig=eSEsKaFHQQohNbRe9NHxlLPx%2BTl3HjfgWKqsjpObmXQ%3D&sr=sb%3A%2F%2Flocalhost%2FOrders",
		"base64 not encoded":   "sharedaccesssignature sr=sb%3a%2f%2flocalhost%2forders&sig=uV5OWt3YCGBBy/7MvPNdcFmG39naaOrpuFyu62cprFY=&se=1893553445&skn=k",
	} {
		t.Run(name, func(t *testing.T) {
			token := parse(t, token)
			if !token.SignedWith(key) {
				t.Error("SignedWith = false, want true")
			}
			if !token.Covers("ORDERS/$management") {
				t.Error("Covers = false, want true")
			}
		})
	}
}

func TestMalformedTokensAreRefused(t *testing.T) {
	good := sas.Make("k", key, "sb://localhost/orders", expires)
	parse(t, good)
	for name, s := range map[string]string{
		"empty":             "",
		"no scheme":         strings.TrimPrefix(good, "SharedAccessSignature "),
		"another scheme":    strings.Replace(good, "SharedAccessSignature", "Bearer", 1),
		"nothing":           "SharedAccessSignature ",
		"no sr":             "SharedAccessSignature " + good[strings.Index(good, "sig="):],
		"no skn":            good[:strings.Index(good, "&skn=")],
		"empty skn":         strings.Replace(good, "&skn=k", "&skn=", 1),
		"repeated field":    good + "&skn=k",
		"unknown field":     good + "&sp=rw",
		"bad encoding":      strings.Replace(good, "sr=", "sr=%zz", 1),
		"short signature":   strings.Replace(good, "sig=", "sig=AAAA", 1),
		"expiry in words":   strings.Replace(good, "se=", "se=soon", 1),
		"negative expiry":   strings.Replace(good, "se=", "se=-", 1),
		"expiry with plus":  strings.Replace(good, "se=", "se=+", 1),
		"expiry too large":  strings.Replace(good, "se=", "se=99999999999999999999", 1),
		"longer than 4 KiB": good + strings.Repeat("x", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sas.Parse(s)
			if !errors.Is(err, sas.ErrMalformed) {
				t.Fatalf("Parse = %v, want ErrMalformed", err)
			}
			if strings.Contains(err.Error(), "localhost") {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestTokensExpireAtTheirSecond(t *testing.T) {
	token := parse(t, sas.Make("k", key, "sb://localhost", expires))
	if token.Expired(expires.Add(-time.Nanosecond)) {
		t.Error("Expired before = true, want false")
	}
	if !token.Expired(expires) {
		t.Error("Expired at = false, want true")
	}
}

func TestCoveredPaths(t *testing.T) {
	for _, c := range []struct {
		resource, path string
		want           bool
	}{
		{"sb://localhost", "", true},
		{"sb://localhost:5672/", "orders", true},
		{"contoso.servicebus.windows.net", "orders", true},
		{"contoso.servicebus.windows.net/orders", "orders", true},
		{"sb://localhost/orders", "Orders", true},
		{"sb://localhost/Orders/", "orders/$management", true},
		{"http://localhost/t", "t/Subscriptions/s", true},
		{"https://localhost/orders?api-version=2024-05", "orders", true},
		{"https://localhost?api-version=2024-05", "orders", true},
		{"sb://localhost/orders", "", false},
		{"sb://localhost/orders", "orders2", false},
		{"sb://localhost/orders", "order", false},
		{"sb://localhost/orders/$management", "orders", false},
	} {
		token := parse(t, sas.Make("k", key, c.resource, expires))
		if got := token.Covers(c.path); got != c.want {
			t.Errorf("a token for %s covers %q = %v, want %v", c.resource, c.path, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sas.Make("k", key, "sb://localhost/orders", expires))
	f.Add("SharedAccessSignature sr=%zz&sig=&se=-1&skn=k&skn=k")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := sas.Parse(s)
		if err != nil {
			if !errors.Is(err, sas.ErrMalformed) {
				t.Fatalf("Parse(%q) = %v, want ErrMalformed", s, err)
			}
			return
		}
		if token.KeyName == "" || token.Resource == "" || token.Expires.Year() > 9999 {
			t.Fatalf("Parse(%q) = %+v", s, token)
		}
		if token.SignedWith("a key that nobody has") {
			t.Fatalf("%q is signed with a key that nobody has", s)
		}
		p, err := address.Resource(token.Resource)
		if err != nil {
			if token.Covers("") || token.Covers("orders") {
				t.Fatalf("%q covers something, and its resource is not plain: %v", s, err)
			}
			return
		}
		if !token.Covers(p) || !token.Covers(strings.TrimLeft(p+"/x", "/")) {
			t.Fatalf("%q does not cover %q", s, p)
		}
	})
}
