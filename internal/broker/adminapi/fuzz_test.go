// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"slices"
	"testing"
)

// Clients can read the answer to any body. An entity that a body makes can be read, and written
// back as it was read.
func FuzzBody(f *testing.F) {
	for _, body := range bodies(f) {
		f.Add(body)
	}
	f.Add(describe("QueueDescription", `<LockDuration>PT5S</LockDuration><AuthorizationRules/>`))
	f.Add(describe("RuleDescription", property("duration", "P1D")))
	f.Fuzz(func(t *testing.T, body string) {
		n, h := setup(t)
		scene(t, n)
		path := place(body) + version
		status, answer := ask(h, "PUT", path, body)
		if err := wellFormed(answer); err != nil {
			t.Fatalf("the answer %d is not well-formed: %v\n%q", status, err, answer)
		}
		if status != 201 {
			if !slices.Contains([]int{400, 413}, status) {
				t.Fatalf("status %d\n%s", status, answer)
			}
			return
		}
		read := must(t, h, 200, "GET", path, "")
		must(t, h, 200, "PUT", path, read, "If-Match", "*")
		again := must(t, h, 200, "GET", path, "")
		if settings(again) != settings(read) {
			t.Fatalf("written back as it was read:\n%s\nthen:\n%s", read, again)
		}
	})
}
