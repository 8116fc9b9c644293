// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // of the machine's temporary folder
	}
	os.Exit(code)
}

var built struct {
	once   sync.Once
	dir    string
	binary string
	err    error
	out    []byte
}

var makeBuild = regexp.MustCompile(`CGO_ENABLED=0 go (build [^\n]*) -ldflags "-s -w -X overdue/internal/version.release=\$\(VERSION\)[^"]*" -o \$\(BINARY\) ./cmd/overdue`)

// program is the binary, built as `make build` and `make image` build it, for this machine.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "overdue-check"); built.err != nil {
			return
		}
		built.binary = filepath.Join(built.dir, "overdue")
		cmd := exec.Command("go", append(strings.Fields(buildFlags(t)), "-ldflags", "-s -w -X overdue/internal/version.release=v0.0.0-check", "-o", built.binary, "./cmd/overdue")...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		built.out, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("building the program: %v\n%s", built.err, built.out)
	}
	return built.binary
}

// buildFlags are those of the Makefile without -ldflags, whose value has a variable in it.
func buildFlags(t *testing.T) string {
	t.Helper()
	m := makeBuild.FindStringSubmatch(read(t, "../../Makefile"))
	if m == nil {
		t.Fatal("the Makefile builds the program in another way than this test knows")
	}
	return m[1]
}

// checkCommand has the program judge its command line and its configuration by variables, and looks
// for variables that it would not read.
func checkCommand(t *testing.T, where string, args []string, env map[string]string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program(t), append(append([]string{}, args...), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s: overdue %s: %v\n%s", where, strings.Join(args, " "), err, out)
	}
	if len(args) == 0 {
		t.Errorf("%s names no command", where)
		return
	}
	for name := range env {
		if _, ok := variables(t)[name]; !ok && strings.HasPrefix(name, "OVERDUE_") {
			t.Errorf("%s sets %s, which is no variable of docs/reference/configuration.md", where, name)
		}
	}
	cmd := exec.CommandContext(t.Context(), program(t), "config", "check")
	if slices.Contains([]string{"run", "proxy", "monitor", "broker"}, args[0]) {
		cmd.Args = append(cmd.Args, "--role", args[0])
	}
	cmd.Env = []string{"HOME=" + t.TempDir(), "OVERDUE_UNATTENDED=true"} // as in the image
	for name, value := range env {
		if value == "secret" {
			value = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=b"
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if len(env) == 0 {
		return
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: the program does not take the variables: %v\n%s", where, err, out)
	}
}

// checkFile has the program judge a configuration file, with flags that stand beside it.
func checkFile(t *testing.T, where, text string, flags ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), append([]string{"config", "check", "--config", writeFile(t, text)}, flags...)...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: the program does not take the file: %v\n%s\n%s", where, err, out, text)
	}
}

var row = regexp.MustCompile("(?m)^\\| `[^`]+` \\| [^|]*\\| (`[^`]*`|[^|]*)[^|]*\\| `(OVERDUE_[A-Z_]+)`")

// variables are those of docs/reference/configuration.md and configuration-rare.md, which are
// generated from the settings, with their defaults.
func variables(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"OVERDUE_CONFIG": ""}
	for _, page := range []string{"configuration.md", "configuration-rare.md"} {
		for _, m := range row.FindAllStringSubmatch(read(t, "../../docs/reference/"+page), -1) {
			all[m[2]] = strings.Trim(m[1], "`")
		}
	}
	if len(all) < 40 {
		t.Fatalf("docs/reference/configuration.md has %d variables; this test has lost its way to them", len(all))
	}
	return all
}

// setting is a duration of the environment, or its default.
func setting(t *testing.T, env map[string]string, name string) time.Duration {
	t.Helper()
	text, ok := env[name]
	if !ok {
		text = variables(t)[name]
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return d
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func atoi(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
