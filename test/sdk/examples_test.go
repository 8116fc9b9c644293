// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// passed is what a suite of examples/testing prints if all of its tests have run and passed.
var passed = map[string]*regexp.Regexp{
	"go":     regexp.MustCompile(`(?s)(--- PASS: .*){4}\nPASS\n`),
	"js":     regexp.MustCompile(`(?m)^\S+ pass 4$`),
	"python": regexp.MustCompile(`Ran 4 tests`),
	"java":   regexp.MustCompile(`4 tests successful`),
}

// Each suite starts a broker of its own, from the PATH, as its readers do.
func TestSuitesOfTheExamplesRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed := install(t)
	bin := filepath.Dir(buildBroker(t))
	for language, want := range passed {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, "./testing.sh", language, installed[language], t.TempDir())
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "BROKER_ADDRESS=")
			out, err := cmd.CombinedOutput()
			if err != nil || !want.Match(out) {
				t.Errorf("%v, and the output has to match %q:\n%s", err, want, out)
			}
		})
	}
}

// The pages quote files that run. Those for .NET run in a workflow of their own.
func TestPagesQuoteTheExamples(t *testing.T) {
	quotes := map[string]string{"examples/testing/dotnet/Webhooks.cs": "docs/reference/webhooks.md"}
	for _, file := range []string{
		"Config.json", "go/broker_test.go", "js/broker.mjs", "python/broker.py", "java/Broker.java", "dotnet/Broker.cs",
	} {
		quotes["examples/testing/"+file] = "docs/broker/testing.md"
	}
	for _, file := range []string{"compose.yaml", "github.yaml", "gitlab.yaml"} {
		quotes["examples/testing/"+file] = "docs/broker/containers.md"
	}
	for file, name := range quotes {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if quoted := shown(string(text)); !strings.Contains(string(page), "\n"+quoted+"```\n") {
			t.Errorf("%s does not quote %s as it is; it has to show:\n%s", name, file, quoted)
		}
	}
}

// shown is an example without the lines on top that are for this repository: those up to
// an empty line that are comments.
func shown(text string) string {
	for {
		head, rest, ok := strings.Cut(text, "\n\n")
		if !ok || !strings.HasPrefix(head, "// SPDX") && !strings.HasPrefix(head, "//go:build") && !strings.HasPrefix(head, "# SPDX") {
			return text
		}
		text = rest
	}
}
