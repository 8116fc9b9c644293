// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"overdue/internal/testing/freeport"
)

// A page is the README of an example, up to its section on Docker, whose files are checked in
// deploy/check.
type page struct {
	example   string
	languages []string // of its table; one without a name, if it has none
	steps     []step
}

// A step is what a reader of the page does or sees next.
type step struct {
	commands string // to type at the root of the repository
	language string // of a row of the table
	stays    bool   // they have a terminal of their own, and go on
	prints   string // or what a program prints that was started before
}

var tableRow = regexp.MustCompile("^\\| ([^|]+) \\| `([^`]+)` \\|\n$")

func readPage(t *testing.T, file string) page {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := page{example: filepath.Base(filepath.Dir(file))}
	before, _, _ := strings.Cut(string(text), "\n## With Docker\n")
	var fence, block, paragraph string
	for line := range strings.Lines(before) {
		row := tableRow.FindStringSubmatch(line)
		stays := strings.Contains(paragraph, "in a terminal of its own")
		switch {
		case strings.HasPrefix(line, "```") && fence == "":
			fence, block = strings.TrimSpace(line), ""
		case strings.HasPrefix(line, "```"):
			switch fence {
			case "```sh":
				p.steps = append(p.steps, step{commands: block, stays: stays})
			case "```text":
				p.steps = append(p.steps, step{prints: block})
			default:
				t.Fatalf("%s: a block begins with %s; a test can follow sh and text", file, fence)
			}
			fence = ""
		case fence != "":
			block += line
		case row != nil:
			p.languages = append(p.languages, row[1])
			p.steps = append(p.steps, step{commands: row[2], language: row[1], stays: stays})
		case !strings.HasPrefix(line, "|") && line != "\n":
			paragraph = line
		}
	}
	if len(p.languages) == 0 {
		p.languages = []string{""}
	}
	if !slices.ContainsFunc(p.steps, func(s step) bool { return s.prints != "" }) {
		t.Errorf("%s does not say what is printed", file)
	}
	return p
}

// runs reports whether the page tells readers who use a language to run a program.
func (p *page) runs(program, language string) bool {
	named := regexp.MustCompile(`(?m)(^|&& )` + program + ` `)
	return slices.ContainsFunc(p.steps, func(s step) bool {
		return (s.language == "" || s.language == language) && named.MatchString(s.commands)
	})
}

// A reader sits at a machine with the programs that a page asks for.
type reader struct {
	t         *testing.T
	folder    string // stands for the root of the repository
	env       []string
	ports     *strings.Replacer
	variables string // that were set in the shell
	terminals []*terminal
}

// A terminal is where commands run, and what they printed so far.
type terminal struct {
	commands string
	cmd      *exec.Cmd
	output   *logLines
	ended    chan error
}

func newReader(t *testing.T, installed map[string]string, program string) *reader {
	t.Helper()
	bin, host := t.TempDir(), absolute(t, "functions/host.cjs")
	if err := os.Symlink(program, filepath.Join(bin, "overdue")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(bin, "func"), fmt.Sprintf("#!/bin/sh\nNODE_PATH='%s/node_modules' exec node '%s' \"$@\"\n", installed["js"], host))
	r := &reader{t: t, folder: t.TempDir(), env: append(os.Environ(),
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"PIP_NO_INDEX=1", "PIP_FIND_LINKS="+installed["wheels"], "PIP_DISABLE_PIP_VERSION_CHECK=1",
		"npm_config_prefer_offline=true", "npm_config_audit=false", "npm_config_fund=false",
		"MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
	)}
	var ports []string
	for port, variable := range map[string]string{
		"5672": "OVERDUE_LISTEN_AMQP", "5300": "OVERDUE_LISTEN_HTTP", "9095": "OVERDUE_LISTEN_ADMIN", "5673": "OVERDUE_BROKER_LISTEN",
		"9097": "", "9999": "",
	} {
		free, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port, free)
		if variable != "" {
			r.env = append(r.env, variable+"=127.0.0.1:"+free)
		}
	}
	r.ports = strings.NewReplacer(ports...)
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.Symlink(absolute(t, filepath.Join(root, name)), filepath.Join(r.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range exampleFiles(t) {
		file := filepath.Join(r.folder, "examples", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(r.ports.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(r.leave)
	return r
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var assignment = regexp.MustCompile(`^[A-Z_]+='[^']*'\n$`)

// follow does what a step says, and waits until the commands are done, or the servers listen.
func (r *reader) follow(s step) {
	r.t.Helper()
	switch {
	case s.prints != "":
		r.sees(s.prints)
		return
	case assignment.MatchString(s.commands):
		r.variables += r.ports.Replace(s.commands)
		return
	}
	shell := exec.Command("bash", "-ec", r.variables+r.ports.Replace(s.commands))
	shell.Dir, shell.Env = r.folder, r.env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m := &terminal{commands: s.commands, cmd: shell, output: &logLines{}, ended: make(chan error, 1)}
	shell.Stdout, shell.Stderr = m.output, m.output
	if err := shell.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.terminals = append(r.terminals, m)
	go func() { m.ended <- shell.Wait() }()
	if s.stays {
		if strings.HasPrefix(s.commands, "overdue ") {
			r.waitFor(`"msg":"serving"`, m)
		}
		return
	}
	select {
	case err := <-m.ended:
		m.ended <- err
		if err != nil {
			r.t.Fatalf("%s ended with %v:\n%s", s.commands, err, m.output.text())
		}
	case <-time.After(suiteTimeout):
		r.t.Fatalf("%s has not ended within %v:\n%s", s.commands, suiteTimeout, m.output.text())
	}
}

// sees waits until one of the programs has printed the lines, or logged them.
func (r *reader) sees(want string) {
	r.t.Helper()
	r.waitFor(want, r.terminals...)
}

func (r *reader) waitFor(want string, terminals ...*terminal) {
	r.t.Helper()
	want = alike(strings.TrimSpace(want))
	for deadline := time.Now().Add(suiteTimeout); ; time.Sleep(20 * time.Millisecond) {
		if slices.ContainsFunc(terminals, func(m *terminal) bool { return strings.Contains(alike(m.output.text()), want) }) {
			return
		}
		if time.Now().After(deadline) {
			for _, m := range terminals {
				r.t.Logf("%s printed:\n%s", m.commands, m.output.text())
			}
			r.t.Fatalf("nothing has printed %q within %v", want, suiteTimeout)
		}
	}
}

// leave ends what still runs: Overdue has to stop well.
func (r *reader) leave() {
	for _, m := range slices.Backward(r.terminals) {
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGTERM) // unless all have ended
		late := time.AfterFunc(stopTimeout, func() { _ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) })
		err := <-m.ended
		late.Stop()
		if err != nil && strings.HasPrefix(m.commands, "overdue ") || strings.Contains(m.output.text(), "DATA RACE") {
			r.t.Errorf("%s ended with %v:\n%s", m.commands, err, m.output.text())
		}
	}
}

var lag = regexp.MustCompile(`, [^,]* late\b`)

// alike is a line without what differs from run to run.
func alike(line string) string { return lag.ReplaceAllString(line, ", N late") }

// logLines are what programs have printed.
type logLines struct {
	mu      sync.Mutex
	written strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.Write(b)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.String()
}
