// SPDX-License-Identifier: Apache-2.0

// Package container runs an image of Overdue as an engine does, without one. It unpacks the layer and
// runs the entry point in there, with its user, its environment and a network of its own. That takes
// root.
package container

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"overdue/internal/testing/program"
)

// ownNetwork is set for a test that has a network of its own.
const ownNetwork = "OVERDUE_TEST_OWN_NETWORK"

// HasOwnNetwork reports whether the test runs where nothing else listens: then it may use the ports
// that users have. If it does not, HasOwnNetwork runs it there, in a process of its own, and fails
// as that does.
func HasOwnNetwork(t *testing.T) bool {
	t.Helper()
	switch {
	case os.Getenv(ownNetwork) != "":
		return true
	case testing.Short():
		t.Skip("builds the program and its image; not with -short")
	case runtime.GOOS != "linux" || os.Getuid() != 0:
		t.Skip("needs root on Linux, for a network and a root file system of its own")
	}
	t.Parallel() // this process only waits
	again := []string{"--net", "sh", "-ec", `ip link set lo up && exec "$@"`, "sh", os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=10m"}
	cmd := exec.CommandContext(t.Context(), "unshare", again...)
	cmd.Env = append(os.Environ(), ownNetwork+"=yes")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network of its own: %v\n%s", err, out)
	}
	return false
}

// An Image is one that has been unpacked.
type Image struct {
	Root   string // where its root file system is
	config struct {
		Config struct {
			Entrypoint, Cmd, Env []string
			User                 string
			Healthcheck          struct{ Test []string }
		} `json:"config"`
	}
}

// Emulator builds the image that stands in for the official emulator, as `make image` does, and
// unpacks it.
func Emulator(t *testing.T) *Image {
	t.Helper()
	folder := t.TempDir()
	binaries := filepath.Join(folder, "overdue_"+runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.Mkdir(binaries, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CGO_ENABLED", "0") // the root file system of the image has no libraries
	if err := os.Rename(program.Build(t, "-trimpath", "-ldflags=-s -w"), filepath.Join(binaries, "overdue")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"THIRD_PARTY_NOTICES.txt", "overdue.cdx.json"} { // which take half a minute
		if err := os.WriteFile(filepath.Join(binaries, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := strings.TrimSpace(run(t, "", "go", "list", "-m", "-f", "{{.Dir}}"))
	run(t, filepath.Join(root, "deploy", "release"), "go", "run", ".", "image", "-binaries", folder, "-version", "0.0.0-test", "-commit", "none",
		"-loadable", filepath.Join(folder, "overdue.tar"), "-name", "overdue:test")
	run(t, folder, "tar", "-xf", "overdue.tar")
	return unpack(t, folder, "overdue:test-emulator")
}

// unpack unpacks the image of that name from what engines load.
func unpack(t *testing.T, folder, name string) *Image {
	t.Helper()
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	readJSON(t, filepath.Join(folder, "manifest.json"), &manifest)
	at := slices.IndexFunc(manifest, func(m struct {
		Config           string
		RepoTags, Layers []string
	}) bool {
		return slices.ContainsFunc(m.RepoTags, func(tag string) bool { return strings.HasSuffix(tag, name) })
	})
	if at < 0 {
		t.Fatalf("no image %s in %+v", name, manifest)
	}
	i := &Image{Root: t.TempDir()}
	readJSON(t, filepath.Join(folder, manifest[at].Config), &i.config)
	for _, layer := range manifest[at].Layers {
		run(t, folder, "tar", "-xpf", layer, "-C", i.Root)
	}
	return i
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func run(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = folder
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, problems.String())
	}
	return string(out)
}

// command is a program of the image, run as its user with its environment and some more of that.
func (i *Image) command(t *testing.T, args, env []string) *exec.Cmd {
	t.Helper()
	c := &i.config.Config
	var user, group uint32
	if _, err := fmt.Sscanf(c.User, "%d:%d", &user, &group); err != nil {
		t.Fatalf("user %q of the image: %v", c.User, err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", append(slices.Clone(c.Env), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.Root, Credential: &syscall.Credential{Uid: user, Gid: group}}
	return cmd
}

// A Container is a running image.
type Container struct {
	image  *Image
	cmd    *exec.Cmd
	env    []string
	lines  chan string
	stderr strings.Builder
	stop   sync.Once
}

// Start runs the image with these variables until Stop or the end of the test.
func (i *Image) Start(t *testing.T, env ...string) *Container {
	t.Helper()
	c := &Container{
		image: i,
		cmd:   i.command(t, slices.Concat(i.config.Config.Entrypoint, i.config.Config.Cmd), env),
		env:   env,
		lines: make(chan string, 1000),
	}
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { c.Stop(t) })
	return c
}

// WaitForLine reads what the container prints up to a line with this text.
func (c *Container) WaitForLine(t *testing.T, text string) {
	t.Helper()
	var printed []string
	for line := range c.lines {
		if printed = append(printed, line); strings.Contains(line, text) {
			return
		}
	}
	c.Stop(t)
	t.Fatalf("no line with %q:\n%s\n%s", text, strings.Join(printed, "\n"), c.stderr.String())
}

// Healthy runs the health check of the image, as an engine does, and returns what is wrong.
func (c *Container) Healthy(t *testing.T) error {
	t.Helper()
	test := c.image.config.Config.Healthcheck.Test
	if len(test) < 2 || test[0] != "CMD" {
		return fmt.Errorf("health check %q: want a command", test)
	}
	out, err := c.image.command(t, test[1:], c.env).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(test[1:], " "), err, out)
	}
	return nil
}

// Stop stops the container as `docker stop` does.
func (c *Container) Stop(t *testing.T) {
	t.Helper()
	c.stop.Do(func() {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		for range c.lines { // to the end of what it prints
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(c.cmd.Args, " "), err, c.stderr.String())
		}
	})
}

// Copy puts a file into the image, as `docker cp` does.
func (i *Image) Copy(t *testing.T, text, path string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(i.Root, path), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
