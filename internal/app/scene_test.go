// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"testing"

	"overdue/internal/config"
)

// loadText writes text to overdue.yaml (no file when it is empty) and loads it with the given variables and flags.
func loadText(t *testing.T, text string, env, flags map[string]string) (*config.Config, error) {
	t.Helper()
	file := ""
	if text != "" {
		t.Chdir(t.TempDir())
		file = "overdue.yaml"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(file, func(name string) string { return env[name] }, flags)
}
