// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestNearestKey(t *testing.T) {
	candidates := []string{"lockDuration", "name", "maxDeliveryCount"}
	for word, want := range map[string]string{
		"lockduration": "lockDuration", "lock_duration": "lockDuration", "anme": "name", "nam": "name", "max-delivery-count": "maxDeliveryCount",
		"maxDeliverycuont": "maxDeliveryCount", "colour": "", "": "", strings.Repeat("x", 1000): "",
	} {
		if got := Nearest(word, candidates); got != want {
			t.Errorf("nearest(%.30q) = %q, want %q", word, got, want)
		}
	}
}
