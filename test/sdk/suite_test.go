// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	installTimeout = 5 * time.Minute // of a fresh machine; nothing is done when all is there
	suiteTimeout   = 12 * time.Minute
)

// A suite is the program of one SDK.
type suite struct {
	sdk string
	in  string // the folder of install.sh, where it is not that of its name
	// build, if any, runs before command; installed is the folder of install.sh,
	// scratch one for what is built.
	build   func(ctx context.Context, installed, scratch string) *exec.Cmd
	command func(ctx context.Context, installed, scratch string) *exec.Cmd
}

var suites = []suite{
	{
		sdk: "js",
		// Modules are found next to the program, so it runs from a copy.
		build: func(ctx context.Context, installed, scratch string) *exec.Cmd {
			return exec.CommandContext(ctx, "sh", "-c", `cp js/*.js js/package.json "$1" && ln -s "$0/node_modules" "$1/node_modules"`, installed, scratch)
		},
		command: func(ctx context.Context, installed, scratch string) *exec.Cmd {
			return exec.CommandContext(ctx, "node", filepath.Join(scratch, "main.js"))
		},
	},
	{
		sdk: "python",
		command: func(ctx context.Context, installed, scratch string) *exec.Cmd {
			return exec.CommandContext(ctx, filepath.Join(installed, "bin", "python"), "-B", filepath.Join("python", "main.py"))
		},
	},
	{
		sdk:   "java",
		build: buildJava,
		command: func(ctx context.Context, installed, scratch string) *exec.Cmd {
			return runJava(ctx, installed, scratch, "Main")
		},
	},
	{
		sdk:   "jms",
		in:    "java",
		build: buildJava,
		command: func(ctx context.Context, installed, scratch string) *exec.Cmd {
			return runJava(ctx, installed, scratch, "Jms")
		},
	},
}

// How programs in Java are compiled and run in a shell. They end within seconds. So neither the
// compiler of hot code nor a collector with threads of its own pays off.
const (
	javac = "javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -nowarn -proc:none"
	java  = "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
)

func buildJava(ctx context.Context, installed, scratch string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", "-c", javac+` -cp "$0/*" -d "$1" java/*.java`, installed, scratch)
}

func runJava(ctx context.Context, installed, scratch, main string) *exec.Cmd {
	command := append(strings.Fields(java), "-cp", filepath.Join(installed, "*")+":"+scratch, main)
	return exec.CommandContext(ctx, command[0], command[1:]...)
}

// The SDKs as they are published, each against a broker of its own, side by side.
func TestSDKs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed, program := install(t), buildBroker(t)
	built := map[string]func() (folder string, err error){} // by the folder of install.sh
	for _, s := range suites {
		all, in := scenariosOf(s.sdk), cmp.Or(s.in, s.sdk)
		if built[in] == nil {
			scratch := t.TempDir()
			built[in] = sync.OnceValues(func() (string, error) { return scratch, s.prepare(t.Context(), installed[in], scratch) })
		}
		for _, way := range []struct {
			name, role, credentials string
			scenarios               []string
		}{
			{"by the broker", "broker", "", all},
			{"by the endpoint", "run", "own", slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == entraScenario })},
			{"by a custom endpoint address", "run", "client", []string{"custom-endpoint", entraScenario}},
		} {
			if !slices.ContainsFunc(way.scenarios, func(name string) bool { return slices.Contains(all, name) }) {
				continue // no SDK of Azure, which has no such option
			}
			t.Run(s.sdk+" "+way.name, func(t *testing.T) {
				t.Parallel()
				scratch, err := built[in]()
				if err != nil {
					t.Fatal(err)
				}
				s.run(t, newNamespace(t, program, way.role, way.credentials), installed[in], scratch, way.scenarios)
			})
		}
	}
}

// install returns the folders of install.sh by name. Unlike `make sdks` it does not touch the
// system.
func install(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "./install.sh")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("install.sh: %v\n%s", err, &stderr)
	}
	folders := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, folder, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			folders[name] = folder
		}
	}
	return folders
}

// prepare builds the program of a suite that has to be built.
func (s *suite) prepare(ctx context.Context, installed, scratch string) error {
	if s.build == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	if out, err := s.build(ctx, installed, scratch).CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}

// run runs the program and reports its scenarios, which have to be those that
// are expected of it.
func (s *suite) run(t *testing.T, ns *namespace, installed, scratch string, want []string) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	cmd := s.command(ctx, installed, scratch)
	cmd.Args = append(cmd.Args, want...)
	cmd.Env = append(os.Environ(), ns.environment()...)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()

	r := readResults(&stdout)
	for _, o := range r.outcomes {
		t.Run(o.scenario, func(t *testing.T) {
			if o.why != "" {
				t.Error(o.why)
			}
		})
	}
	ran := make([]string, 0, len(r.outcomes))
	for _, o := range r.outcomes {
		ran = append(ran, o.scenario)
	}
	slices.Sort(ran)
	if !slices.Equal(ran, want) {
		t.Errorf("scenarios that ran: %v\nwant %v", ran, want)
	}
	if want := fmt.Sprintf("%d passed, 0 failed", len(ran)); r.summary != want {
		t.Errorf("summary %q, want %q", r.summary, want)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Errorf("not done after %v", suiteTimeout)
	case runErr != nil && !errors.As(runErr, &exit):
		t.Errorf("running: %v", runErr)
	case runErr != nil:
		t.Errorf("exit code %d", exit.ExitCode())
	}
	if t.Failed() && stderr.Len() > 0 {
		t.Logf("stderr, the end of it:\n%s", tail(stderr.Bytes(), 8<<10))
	}
}

// An outcome is one line `ok NAME` or `FAIL NAME: why`.
type outcome struct{ scenario, why string }

type results struct {
	outcomes []outcome
	summary  string // the last line
}

func readResults(stdout io.Reader) results {
	var r results
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		r.summary = line
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			r.outcomes = append(r.outcomes, outcome{scenario: name})
		} else if rest, ok := strings.CutPrefix(line, "FAIL "); ok {
			name, why, _ := strings.Cut(rest, ": ")
			r.outcomes = append(r.outcomes, outcome{name, cmp.Or(why, "no reason given")})
		}
	}
	return r
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
