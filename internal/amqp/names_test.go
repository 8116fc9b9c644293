// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"errors"
	"strings"
	"testing"
)

func TestNamesAreBounded(t *testing.T) {
	of := func(n int) map[string]Performative {
		name := strings.Repeat("n", n)
		return map[string]Performative{
			"container-id":      &Open{ContainerID: name},
			"hostname":          &Open{ContainerID: "c", Hostname: name},
			"name of a link":    &Attach{Name: name},
			"source address":    &Attach{Name: "l", Source: &Source{Address: name}},
			"target address":    &Attach{Name: "l", Target: &Target{Address: name}},
			"expiry-policy":     &Attach{Name: "l", Source: &Source{ExpiryPolicy: Symbol(name)}},
			"distribution-mode": &Attach{Name: "l", Source: &Source{DistributionMode: Symbol(name)}},
			"condition":         &Detach{Error: &Error{Condition: Symbol(name)}},
		}
	}
	for field, p := range of(MaxName) {
		if _, _, err := DecodePerformative(p.Append(nil)); err != nil {
			t.Errorf("%s of %d bytes: %v", field, MaxName, err)
		}
	}
	for field, p := range of(MaxName + 1) {
		if _, _, err := DecodePerformative(p.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s of %d bytes: %v, want ErrMalformed", field, MaxName+1, err)
		}
	}
	binary := AppendBinary(nil, make([]byte, MaxName))
	if _, _, err := DecodePerformative((&Attach{Name: "l", Source: &Source{OtherAddress: binary}}).Append(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an address of %d bytes that is no string: %v, want ErrMalformed", len(binary), err)
	}
}
