// SPDX-License-Identifier: Apache-2.0

package address

import "testing"

func TestMessagesAreNamedByIDOrByNumber(t *testing.T) {
	for want, got := range map[string]string{"m": MessageName("m", 17), "#17": MessageName("", 17)} {
		if got != want {
			t.Errorf("the name is %q, want %q", got, want)
		}
	}
	for _, tc := range []struct {
		name, id string
		number   int64
		want     bool
	}{
		{"m", "m", 17, true}, {"#17", "m", 17, true}, {"#17", "", 17, true},
		{"#1", "", 17, false}, {"17", "", 17, false}, {"M", "m", 17, false},
	} {
		if got := Names(tc.name, tc.id, tc.number); got != tc.want {
			t.Errorf("%q names the message %q with number %d: %v, want %v", tc.name, tc.id, tc.number, got, tc.want)
		}
	}
}
