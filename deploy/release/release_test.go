// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// full has every platform built twice, with two caches of the compiler: `make release-check`.
// Otherwise it is the platform of this machine, and both builds share the cache.
var full = os.Getenv("OVERDUE_RELEASE") == "full"

const (
	testVersion = "0.1.0-test.1"
	testTime    = 1_790_000_000
	testDocs    = "https://example.com/overdue"
)

// A checkoutCopy is a repository with the files of this checkout and one commit.
type checkoutCopy struct {
	folder string
	commit string
}

// released are two copies on two paths with the same release. They live as long as the tests do.
var released = sync.OnceValues(func() ([2]checkoutCopy, error) {
	var both [2]checkoutCopy
	for i, name := range []string{"one", "quite/another path/two"} {
		var err error
		if both[i], err = copyCheckout(filepath.Join(scratch, name)); err != nil {
			return both, err
		}
		var env []string
		if full && i > 0 {
			// Nothing that was compiled on the first path is used on the second one.
			env = append(env, "GOCACHE="+filepath.Join(scratch, "another cache"))
		}
		if err := makeRelease(both[i].folder, env...); err != nil {
			return both, fmt.Errorf("release %d: %w", i+1, err)
		}
	}
	return both, nil
})

// makeRelease runs `make release` as the workflow does, with a program in place of cosign that
// writes the sum of what it signs.
func makeRelease(folder string, env ...string) error {
	tools := filepath.Join(scratch, "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return err
	}
	// sign-blob --yes --bundle SIGNATURE FILE
	if err := os.WriteFile(filepath.Join(tools, "cosign"), []byte("#!/bin/sh\nsha256sum <\"$5\" >\"$4\"\n"), 0o755); err != nil {
		return err
	}
	installed, err := filepath.Glob("../../bin/goreleaser-*")
	if err != nil || len(installed) != 1 {
		return fmt.Errorf("goreleaser in bin: %q, %w; make release-check installs it", installed, err)
	}
	goreleaser, err := filepath.Abs(installed[0])
	if err != nil {
		return err
	}
	cmd := exec.Command("make", "release", "RELEASE="+testVersion, "SIGN=1", "DOCS_BASE="+testDocs, "GORELEASER="+goreleaser)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "MAKEFLAGS=")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make release: %w\n%s", err, out)
	}
	return nil
}

// scratch is removed when the tests have ended.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "overdue-release-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// copyCheckout copies the files of the checkout, those that are not committed yet included, and
// commits them at testTime.
func copyCheckout(folder string) (checkoutCopy, error) {
	list, err := exec.Command("git", "-C", checkout, "ls-files", "-z", "-co", "--exclude-standard").Output()
	if err != nil {
		return checkoutCopy{}, fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(checkout, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return checkoutCopy{}, err
		}
		if name == ".goreleaser.yaml" && !full {
			data = bytes.Replace(data, []byte("goos: [linux, darwin, windows]\n    goarch: [amd64, arm64]"),
				fmt.Appendf(nil, "goos: [%s]\n    goarch: [%s]", runtime.GOOS, runtime.GOARCH), 1)
		}
		target := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return checkoutCopy{}, err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return checkoutCopy{}, err
		}
	}
	date := fmt.Sprintf("%d +0000", testTime)
	git := func(args ...string) ([]byte, error) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost", "-C", folder}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
		return cmd.Output()
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-f", "."}, {"commit", "-q", "-m", "test"}} {
		if _, err := git(args...); err != nil {
			return checkoutCopy{}, fmt.Errorf("git %q: %w", args, err)
		}
	}
	commit, err := git("rev-parse", "HEAD")
	return checkoutCopy{folder: folder, commit: strings.TrimSpace(string(commit))}, err
}

// artefacts are the names of what is published: the files of bin/release without goreleaser's own.
func artefacts(t *testing.T, c checkoutCopy) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"overdue*_*.*", "checksums.txt*"} {
		found, err := filepath.Glob(filepath.Join(c.folder, "bin/release", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err != nil {
				t.Fatal(err)
			} else if info.Mode().IsRegular() {
				names = append(names, filepath.Base(path))
			}
		}
	}
	slices.Sort(names)
	return names
}

// release is the first of both copies.
func release(t *testing.T) checkoutCopy {
	t.Helper()
	return bothReleases(t)[0]
}

func bothReleases(t *testing.T) [2]checkoutCopy {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a release with goreleaser: make release-check; not with -short")
	}
	both, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return both
}

func readArtefact(t *testing.T, c checkoutCopy, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.folder, "bin/release", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// artefact is the path of one that is for this machine.
func artefact(t *testing.T, ending string) string {
	t.Helper()
	return filepath.Join(release(t).folder, "bin/release", "overdue_"+testVersion+"_"+runtime.GOOS+"_"+runtime.GOARCH+ending)
}

func TestAReleaseIsTheSameOnTwoPaths(t *testing.T) {
	both := bothReleases(t)
	names := artefacts(t, both[0])
	if second := artefacts(t, both[1]); !slices.Equal(names, second) {
		t.Fatalf("%q and %q, want the same names", names, second)
	}
	want := []string{"overdue_" + testVersion + "_oci.tar", "overdue-emulator_" + testVersion + "_oci.tar", ".tar.gz", ".deb", ".rpm", "_npm.tgz", ".whl", ".cdx.json", "checksums.txt", "checksums.txt.sigstore.json"}
	if full {
		want = append(want, "_darwin_arm64.tar.gz", "_windows_amd64.zip", "_linux_arm64.deb", "_linux_arm64.rpm", "_windows_arm64.cdx.json", "_darwin_arm64_npm.tgz", "-win_amd64.whl")
	}
	for _, ending := range want {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ending) }) {
			t.Errorf("no artefact ends in %s: %q", ending, names)
		}
	}
	for _, name := range names {
		first, second := readArtefact(t, both[0], name), readArtefact(t, both[1], name)
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs: %x and %x", name, sha256.Sum256(first), sha256.Sum256(second))
		}
		t.Logf("%11d bytes: %s", len(first), name)
	}
}

func TestChecksumsAreThoseOfTheFilesAndSigned(t *testing.T) {
	c := release(t)
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--strict", "-c", "checksums.txt")
	cmd.Dir = filepath.Join(c.folder, "bin/release")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sha256sum: %v\n%s", err, out)
	}
	for _, name := range artefacts(t, c) {
		if strings.HasPrefix(name, "overdue") && !strings.Contains(string(out), name+": OK\n") {
			t.Errorf("%s has no checksum", name)
		}
	}
	signature := readArtefact(t, c, "checksums.txt.sigstore.json")
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(readArtefact(t, c, "checksums.txt"))); string(signature) != want {
		t.Errorf("signature %q, want %q", signature, want)
	}
}

func TestCommandsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"stray"},
		{"describe", "1.0.0"},
		{"describe", "v1.0.0", "overdue"},
		{"describe", "1", "overdue"},
		{"image", "-binaries", t.TempDir(), "-oci", "x.tar"},
		{"notes", "-version", "v0.1.0"},
		{"packages", "-version", "1.0.0"},
		{"packages", "-version", "v1.0.0", "overdue_linux_amd64/overdue"},
		{"packages", "-version", "1.0.0", "overdue_plan9_amd64/overdue"},
		{"packages", "-version", "1.0.0", "overdue"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("run(%q) = nil, want an error", args)
		}
	}
}

func TestTheChangelogIsTurned(t *testing.T) {
	const before = "# Changelog\n\nIntroduction.\n\n## Unreleased\n\nNothing has been released yet. It\nsays more.\n\n### Proxy\n\n- [FIX] one\n"
	first, err := turned(before, "0.1.0", time.Unix(testTime, 0))
	want := "# Changelog\n\nIntroduction.\n\n## Unreleased\n\n## 0.1.0 (2026-09-21)\n\n### Proxy\n\n- [FIX] one\n"
	if err != nil || first != want {
		t.Fatalf("turned = %q, %v, want %q", first, err, want)
	}
	if notes, err := section(first, "## 0.1.0 "); err != nil || notes != "### Proxy\n\n- [FIX] one\n" {
		t.Errorf("section = %q, %v", notes, err)
	}
	if _, err := turned(first, "0.2.0", time.Unix(testTime, 0)); err == nil {
		t.Error("a release without a line in the changelog is made")
	}
	second, err := turned(strings.Replace(first, unreleased+"\n", unreleased+"\n\n- [FIX] two\n", 1), "0.2.0", time.Unix(testTime, 0))
	want = strings.Replace(want, "## 0.1.0", "## 0.2.0 (2026-09-21)\n\n- [FIX] two\n\n## 0.1.0", 1)
	if err != nil || second != want {
		t.Errorf("turned = %q, %v, want %q", second, err, want)
	}
	if _, err := turned(second, "0.1.0", time.Unix(testTime, 0)); err == nil {
		t.Error("a version is released twice")
	}
	text, err := os.ReadFile(filepath.Join(checkout, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := section(string(text), unreleased); err != nil {
		t.Errorf("the project's changelog: %v", err)
	} else if _, err := turned(string(text), "999.0.0", time.Unix(testTime, 0)); (err != nil) != (strings.TrimSpace(lines) == "") {
		t.Errorf("the project's changelog: %v", err)
	}
}
