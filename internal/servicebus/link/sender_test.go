// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"io"
	"testing"

	codec "overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

func TestErrorsOfLinksAreThoseOfTheSDK(t *testing.T) {
	busy := codec.Errorf("com.microsoft:server-busy", "later")
	for _, tt := range []struct {
		err                     error
		condition               string
		lost, refused, rejected bool
	}{
		{busy, string(busy.Condition), false, true, true},
		{&client.EndedError{Scope: client.Link, Remote: busy}, string(busy.Condition), false, true, false},
		{&client.EndedError{Scope: client.Link}, "", true, true, false},
		{&client.EndedError{Scope: client.Session, Remote: busy}, string(busy.Condition), false, false, false},
		{&client.EndedError{Scope: client.Session}, "", true, false, false},
		{&client.EndedError{Scope: client.Connection, Remote: busy}, string(busy.Condition), true, false, false},
		{&client.EndedError{Scope: client.Connection, Cause: io.EOF}, "", true, false, false},
		{&client.EndedError{Scope: client.Connection, Cause: busy}, "", true, false, false},
		{&client.EndedError{Scope: client.Connection}, "", true, false, false},
		{io.EOF, "", true, false, false},
	} {
		err := fmt.Errorf("send: %w", clientError(tt.err))
		if Condition(err) != tt.condition || Lost(err) != tt.lost || refused(err) != tt.refused || rejected(err) != tt.rejected {
			t.Errorf("%v: condition %q, lost %v, refused %v, rejected %v; want %+v", err, Condition(err), Lost(err), refused(err), rejected(err), tt)
		}
	}
	if clientError(nil) != nil {
		t.Error("no error becomes one")
	}
}
