// SPDX-License-Identifier: Apache-2.0

package entities

import "testing"

// Where an entity forwards to is read as every address is; what cannot be read is still somewhere.
func TestTargetsAreReadAsAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "next": "next", "/next/": "next", "sb://host/next": "next", "https://host:443/a/b/": "a/b", "HTTPS://HOST/Next": "Next",
		"sb://host": "sb://host", "//host/next": "//host/next", "a//b": "a//b", "sb://host/a%2Fb": "sb://host/a%2Fb",
	} {
		if got := Target(text); got != want {
			t.Errorf("Target(%q) = %q, want %q", text, got, want)
		}
	}
}
