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

// examples are the test suites that docs/broker/README.md names. Each starts a broker of its
// own, from the PATH, as its readers do.
var examples = []struct {
	sdk, file string
	run       string // $0 is the folder of install.sh, $1 an empty one
	passed    *regexp.Regexp
}{
	{"go", "examples/go/orders_test.go", `go test -count=1 -v -tags example ./examples/go`,
		regexp.MustCompile(`(?s)--- PASS: .*--- PASS: .*--- PASS: .*\nPASS\n`)},
	{"js", "examples/js/orders.test.mjs", `cp examples/js/*.mjs "$1" && ln -s "$0/node_modules" "$1/node_modules" && node --test "$1/orders.test.mjs"`,
		regexp.MustCompile(`(?m)^\S+ pass 3$`)},
	{"python", "examples/python/test_orders.py", `"$0/bin/python" -B examples/python/test_orders.py`,
		regexp.MustCompile(`Ran 3 tests`)},
	{"java", "examples/java/OrdersTest.java", javac + ` -cp "$0/*" -d "$1" examples/java/*.java && ` +
		java + ` -cp "$0/*:$1" org.junit.platform.console.ConsoleLauncher execute --select-class OrdersTest --disable-banner`,
		regexp.MustCompile(`3 tests successful`)},
}

func TestExamplesOfTheDocRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed := install(t)
	bin := filepath.Dir(buildBroker(t))
	for _, e := range examples {
		t.Run(e.sdk, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", e.run, installed[e.sdk], t.TempDir())
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || !e.passed.Match(out) {
				t.Errorf("%s: %v, and the output has to match %q:\n%s", e.file, err, e.passed, out)
			}
		})
	}
}

// The pages quote examples that run, that for .NET in a workflow of its own, and link to the others.
func TestDocQuotesTheExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/broker/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"examples/dotnet/OrdersTest.cs"}
	for _, e := range examples {
		files = append(files, e.file)
	}
	for _, file := range files {
		if !strings.Contains(string(page), "](../../test/sdk/"+file+")") {
			t.Errorf("docs/broker/README.md does not link to %s", file)
		}
	}
	for file, name := range map[string]string{
		"examples/js/orders.test.mjs": "../../docs/broker/README.md",
		"examples/dotnet/Webhooks.cs": "../../docs/reference/webhooks.md",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(name)
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
