// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilesOfAConfiguration(t *testing.T) {
	c := &Config{file: "overdue.yaml", raw: map[string]any{
		"namespaceFile": "ns",
		"listen":        map[string]any{"tls": map[string]any{"keyFile": "no"}, "keys": []any{map[string]any{"name": "a", "keyFile": "key"}}},
		"alerts":        []any{map[string]any{"webhook": map[string]any{"urlFile": "url"}}},
		"broker":        map[string]any{"emulatorConfig": "Config.json"},
	}}
	if diff := cmp.Diff([]string{"Config.json", "key", "ns", "overdue.yaml", "url"}, c.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
