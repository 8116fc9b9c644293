// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the page that is generated instead of comparing with it")

// The page of commands has to be what the commands would generate now.
func TestGeneratedPagesAreFresh(t *testing.T) {
	const file = "../../docs/reference/cli.md"
	want := commandLine()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is stale; run `make docs` (-code +file):\n%s", file, diff)
	}
}
