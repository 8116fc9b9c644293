// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"testing"

	"overdue/internal/config"
)

// loadText loads text as a file (none when it is empty), with the given variables and flags.
func loadText(t *testing.T, text string, env, flags map[string]string) (*config.Config, error) {
	t.Helper()
	return loadFile(t, filepath.Join(t.TempDir(), "overdue.yaml"), text, env, flags)
}

// loadHere is loadText in a working directory of its own, where the file is overdue.yaml: for tests
// that compare its name. They cannot run in parallel.
func loadHere(t *testing.T, text string, env, flags map[string]string) (*config.Config, error) {
	t.Helper()
	if text != "" {
		t.Chdir(t.TempDir())
	}
	return loadFile(t, "overdue.yaml", text, env, flags)
}

func loadFile(t *testing.T, file, text string, env, flags map[string]string) (*config.Config, error) {
	t.Helper()
	if text == "" {
		file = ""
	} else if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, func(name string) string { return env[name] }, flags)
}
