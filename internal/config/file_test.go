// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A file of a few lines that unfolds to a billion values must cost an error and no more.
func TestAliasesDoNotUnfoldWithoutBound(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 {name: q}\n")
	for i := 1; i < 12; i++ {
		n := string(rune('a' + i))
		prev := "*a0"
		if i > 1 {
			prev = "*" + string(rune('a'+i-1))
		}
		b.WriteString(n + ": &" + n + " [" + strings.TrimSuffix(strings.Repeat(prev+", ", 10), ", ") + "]\n")
	}
	b.WriteString("broker: {queues: *l}\n")
	if _, err := load(t, b.String(), nil, nil); err == nil {
		t.Error("no error for a file of aliases")
	}
}

func TestAFileOfTooManyValuesIsOneError(t *testing.T) {
	_, err := load(t, "x: &e {name: q}\nbroker: {queues: ["+strings.Repeat("*e, ", 100_000)+"]}\n", nil, nil)
	want := "the file unfolds to more than 50000 values"
	if err == nil || strings.Count(err.Error(), want) != 1 {
		t.Errorf("got error %.300v, want one with %q once", err, want)
	}
}

func TestAFileThatIsTooLongIsNotRead(t *testing.T) {
	_, err := load(t, strings.Repeat("# nothing\n", 110_000), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "overdue.yaml is longer than 1MiB") {
		t.Errorf("got error %v, want one that names the bound", err)
	}
}

// Reading any text ends with a configuration or an error.
func FuzzConfigurationFile(f *testing.F) {
	f.Add("broker:\n  queues: [{name: orders}]\nalerts: [{webhook: {url: http://x}}]\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {}\n: x\n")
	f.Add("log: !!binary x\n--- \n")
	f.Fuzz(func(t *testing.T, text string) {
		root, err := parseYAML([]byte(text))
		if err != nil || root == nil {
			return
		}
		l := newLayer(func(int) string { return "fuzz" })
		l.section(root, "", "", l.values)
		if len(l.errs) > maxConfigErrs {
			t.Errorf("%d errors, want at most %d", len(l.errs), maxConfigErrs)
		}
		if len(l.errs) > 0 {
			return
		}
		if _, err := merge([]*layer{defaults(false, false), l}); err != nil {
			t.Errorf("a file without mistakes cannot be merged: %v\n%s", err, text)
		}
	})
}

// A configuration is loaded again by a reload, and a pipe is empty then.
func TestAPipeIsReadOnce(t *testing.T) {
	pipe := func(text string) string {
		name := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		go func() { // until somebody has read it
			if err := os.WriteFile(name, []byte(text), 0); err != nil {
				t.Error(err)
			}
		}()
		return name
	}
	entities := pipe(`{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "orders"}]}]}}`)
	file := pipe("broker: {emulatorConfig: " + entities + "}\nnamespaceFile:\n")
	for range 3 {
		c, err := Load(file, func(string) string { return "" }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.EntityNames(); !slices.Equal(got, []string{"orders"}) {
			t.Errorf("entities = %q, want orders", got)
		}
		if c.Sources.Reloads() {
			t.Errorf("what is to be watched: %q, want nothing", c.Sources.Files())
		}
	}
}
