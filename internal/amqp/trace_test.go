// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"strings"
	"testing"
)

func TestTraceStaysOnOneShortLine(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for want, p := range map[string]Performative{
		"empty": nil,
		`close error=amqp:not-found description="no\nqueue \"q\" \u00fc\x1b"`: &Close{Errorf(ErrCondNotFound, "no\nqueue \"q\" ü\x1b")},
		`end error="" description="` + long[:maxTraceText] + `"...`:           &End{&Error{Description: long}},
		`attach name="" handle=0 role=sender snd=0 rcv=0 source=dynamic target=coordinator initial-count=0`: &Attach{
			Source: &Source{Dynamic: true}, Coordinator: &Coordinator{},
		},
		`attach name="a b" handle=0 role=receiver snd=0 rcv=0 source="q\r" target=none`: &Attach{
			Name: "a b", Role: RoleReceiver, Source: &Source{Address: "q\r", HasAddress: true}, Target: &Target{},
		},
		"transfer handle=0 format=0x80013700 state=transactional txn=01 state=modified delivery-failed aborted len=0": &Transfer{
			MessageFormat: BatchMessageFormat, HasMessageFormat: true, Aborted: true,
			State: &TransactionalState{[]byte{1}, &Modified{DeliveryFailed: true}},
		},
	} {
		if got := Trace(p, 0); got != want {
			t.Errorf("Trace = %s\n want %s", got, want)
		}
	}
}

func TestTraceKeepsCredentialsOut(t *testing.T) {
	for _, p := range []Performative{
		&SASLInit{"PLAIN", []byte("secret"), "h"}, &SASLOutcome{SASLAuth, []byte("secret")},
	} {
		if got := Trace(p, 6); strings.Contains(got, "secret") || strings.Contains(got, "736563726574") {
			t.Errorf("Trace of %T = %s", p, got)
		}
	}
}
