// SPDX-License-Identifier: Apache-2.0

// Package generated keeps the parts of a page that come from code in step with it.
package generated

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check compares the blocks of a page with what they should hold, by the names of the blocks, or
// writes them if update is set. A block stands between <!-- begin NAME --> and <!-- end NAME -->.
func Check(t *testing.T, page string, update bool, blocks map[string]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, block := range blocks {
		begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
		before, rest, hasBegin := strings.Cut(want, begin)
		_, after, hasEnd := strings.Cut(rest, end)
		if !hasBegin || !hasEnd {
			t.Fatalf("%s has no %q or no %q", page, begin, end)
		}
		want = before + begin + "\n" + block + "\n" + end + after
	}
	if update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is stale; run `make docs` (-code +file):\n%s", page, diff)
	}
}
