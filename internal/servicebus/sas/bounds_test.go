// SPDX-License-Identifier: Apache-2.0

package sas_test

import (
	"errors"
	"strings"
	"testing"

	"overdue/internal/servicebus/sas"
)

// The bound of a token is 4 KiB, and a token of that length is read.
func TestATokenMayHaveFourKiB(t *testing.T) {
	const most = 4096
	good := sas.Make("k", key, "sb://localhost/orders", expires)
	long := func(n int) string { return good + strings.Repeat("x", n-len(good)) } // a longer key name
	if token := parse(t, long(most)); len(token.KeyName) != most-len(good)+1 {
		t.Errorf("the key name has %d characters, want %d", len(token.KeyName), most-len(good)+1)
	}
	if _, err := sas.Parse(long(most + 1)); !errors.Is(err, sas.ErrMalformed) {
		t.Errorf("Parse of %d bytes = %v, want ErrMalformed", most+1, err)
	}
}

// Fields are named without case, as query parameters of the SDKs are.
func TestFieldsAreNamedWithoutCase(t *testing.T) {
	good := sas.Make("k", key, "sb://localhost/orders", expires)
	upper := strings.NewReplacer(" sr=", " SR=", "&sig=", "&Sig=", "&se=", "&SE=", "&skn=", "&SKN=").Replace(good)
	if token := parse(t, upper); !token.SignedWith(key) || token.KeyName != "k" {
		t.Errorf("%+v, want what was signed", token)
	}
}

func TestASignatureThatIsNotURLEncodedIsMalformed(t *testing.T) {
	bad := strings.Replace(sas.Make("k", key, "sb://localhost/orders", expires), "&sig=", "&sig=%zz", 1)
	if _, err := sas.Parse(bad); !errors.Is(err, sas.ErrMalformed) {
		t.Errorf("Parse = %v, want ErrMalformed", err)
	}
}

func TestARefusalNamesTheRightsThatWouldDo(t *testing.T) {
	got := sas.Missing(sas.Listen|sas.Send, "orders").Error()
	if want := "Unauthorized access. 'Listen,Send' claim(s) are required to perform this operation. Resource: '/orders'."; got != want {
		t.Errorf("Missing = %q, want %q", got, want)
	}
}
