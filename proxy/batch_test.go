// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestADeadlineInTheHeadOfABatchIsRefused(t *testing.T) {
	for _, name := range []string{propDeadline, propWithin, propExpiry} {
		for _, value := range []string{"30s", "2033-11-06T08:49:37Z"} { // each is unreadable for one of them
			h := http.Header{}
			h.Set(name, value)
			if err := checkHead(h); !errors.Is(err, errBadRequest) || !strings.Contains(err.Error(), "header") {
				t.Errorf("checkHead with %s: %s = %v, want a bad request about the header", name, value, err)
			}
		}
	}
}
