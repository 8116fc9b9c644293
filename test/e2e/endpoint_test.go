// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"
	"testing"
)

func TestTheEndpointRefusesCompanions(t *testing.T) {
	play(t, func(s *scene) {
		for _, name := range []string{monitorQueue, strings.ToUpper(monitorQueue)} {
			if code, body := s.post(name, "m", ""); code != http.StatusBadRequest || !strings.Contains(body, "monitor queue") {
				s.Errorf("a send to %s = %d %s, want 400 with a sentence about the monitor queue", name, code, body)
			}
		}
		if got := len(s.Waiting(monitorQueue)); got != 0 {
			s.Errorf("%d messages on the monitor queue, want none", got)
		}
	})
}
