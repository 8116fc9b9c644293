// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const protocolDoc = "../../docs/broker/protocol.md"

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestProtocolDocNamesFilesThatExist(t *testing.T) {
	files := regexp.MustCompile(`\b(internal|test)/[a-z0-9_/]+(\.go)?`).FindAllString(read(t, protocolDoc), -1)
	if len(files) < 30 {
		t.Fatalf("found only %d files in %s: %q", len(files), protocolDoc, files)
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join("../..", f)); err != nil {
			t.Errorf("%s names %s: %v", protocolDoc, f, err)
		}
	}
}

func TestProtocolDocNamesEveryManagementOperation(t *testing.T) {
	doc := read(t, protocolDoc)
	table := regexp.MustCompile(`(?s)var operations = map.*?\n}`).FindString(read(t, "../../internal/broker/mgmt.go"))
	operations := regexp.MustCompile(`"(com\.microsoft:[a-z-]+)":`).FindAllStringSubmatch(table, -1)
	if len(operations) == 0 {
		t.Fatal("found no operation in the table of internal/broker/mgmt.go")
	}
	for _, o := range operations {
		if !strings.Contains(doc, "| `"+o[1]+"` |") {
			t.Errorf("%s has no row for %s", protocolDoc, o[1])
		}
	}
}

// The groups of Exercise stand in the last column, before the live tests.
func TestProtocolDocNamesGroupsThatExist(t *testing.T) {
	var groups []string
	for _, g := range regexp.MustCompile(`\{"([A-Za-z]+)", [a-zA-Z]+Specs\}`).FindAllStringSubmatch(read(t, "../../internal/testing/exercise/exercise.go"), -1) {
		groups = append(groups, g[1])
	}
	if len(groups) == 0 {
		t.Fatal("found no group in internal/testing/exercise/exercise.go")
	}
	word := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	named := map[string]bool{}
	for line := range strings.Lines(read(t, protocolDoc)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		last := strings.TrimSuffix(cells[len(cells)-1], " |")
		for _, w := range strings.Split(last, ", ") {
			if !strings.HasPrefix(line, "|") || !word.MatchString(w) || strings.HasPrefix(w, "Test") {
				continue
			}
			named[w] = true
			if !slices.Contains(groups, w) {
				t.Errorf("%s says that something is tested by %s, which is no group of Exercise: %q", protocolDoc, w, groups)
			}
		}
	}
	for _, g := range groups {
		if !named[g] {
			t.Errorf("%s does not say what the group %s tests", protocolDoc, g)
		}
	}
}

func TestProtocolDocNamesWhatIsSpecialAboutLiveTests(t *testing.T) {
	doc := read(t, protocolDoc)
	for _, name := range slices.Sorted(maps.Keys(distant)) {
		_, test, _ := strings.Cut(name, ".")
		if !strings.Contains(doc, "`"+test+"`") {
			t.Errorf("%s does not mention %s", protocolDoc, name)
		}
	}
}
