// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	testCommit  = "0123456789abcdef0123456789abcdef01234567"
	testTime    = 1_790_000_000
)

// two are the folders of the same release, built on two paths. They live as long as the tests do.
var two = sync.OnceValues(func() ([2]string, error) {
	var out, cache [2]string
	for i, name := range []string{"one", "quite/another path/two"} {
		folder := filepath.Join(scratch, name)
		source := filepath.Join(folder, "source")
		if err := copyTree(source); err != nil {
			return out, err
		}
		out[i] = filepath.Join(folder, "out")
		if full && i == 0 {
			var err error
			if cache, err = caches(context.Background(), source); err != nil {
				return out, err
			}
		}
		args := []string{"-source", source, "-out", out[i], "-version", testVersion, "-commit", testCommit, "-time", fmt.Sprint(testTime)}
		if !full {
			args = append(args, "-platforms", runtime.GOOS+"/"+runtime.GOARCH)
		}
		r, err := parse(context.Background(), args)
		if err != nil {
			return out, err
		}
		r.cache = cache[i]
		if err := r.make(context.Background()); err != nil {
			return out, fmt.Errorf("release %d: %w", i+1, err)
		}
	}
	return out, nil
})

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

// copyTree copies the files of the checkout, those that are not committed yet included.
func copyTree(to string) error {
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "-co", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// released is the folder of one release.
func released(t *testing.T) string {
	t.Helper()
	out, err := two()
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// artefact is the path of one that is for this machine.
func artefact(t *testing.T, ending string) string {
	t.Helper()
	return filepath.Join(released(t), "overdue_"+testVersion+"_"+runtime.GOOS+"_"+runtime.GOARCH+ending)
}

func TestAReleaseIsTheSameOnTwoPaths(t *testing.T) {
	out, err := two()
	if err != nil {
		t.Fatal(err)
	}
	first, err := under(out[0])
	if err != nil {
		t.Fatal(err)
	}
	second, err := under(out[1])
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != len(second) || len(first) < 9 {
		t.Fatalf("%d and %d files, want the same number, at least nine", len(first), len(second))
	}
	for i, f := range first {
		if f.path != second[i].path || !bytes.Equal(f.data, second[i].data) {
			t.Errorf("%s (%x) and %s (%x) differ", f.path, sha256.Sum256(f.data), second[i].path, sha256.Sum256(second[i].data))
		}
		t.Logf("%11d bytes: %s", len(f.data), f.path)
	}
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--strict", "-c", checksumsFile)
	cmd.Dir = released(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sha256sum: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(cmd.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() && e.Name() != checksumsFile && !strings.Contains(string(out), e.Name()+": OK\n") {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
}

func TestChecksumsAreSigned(t *testing.T) {
	r := &release{out: t.TempDir(), version: testVersion, sign: "sha256sum <{} >{}.signature"}
	if err := os.WriteFile(filepath.Join(r.out, "overdue_x.deb"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.checksums(t.Context()); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, checksumsFile))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := os.ReadFile(filepath.Join(r.out, checksumsFile+".signature"))
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(sums)); err != nil || string(signature) != want {
		t.Errorf("signature %q, %v, want %q", signature, err, want)
	}
	r.sign = "exit 3"
	if err := r.checksums(t.Context()); err == nil {
		t.Error("a signing command that fails does not fail the release")
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-version", "v1.0.0"}, {"-version", "1"}, {"-platforms", "plan9/amd64"}, {"-platforms", ""}, {"stray"},
	} {
		if _, err := parse(t.Context(), args); err == nil {
			t.Errorf("parse(%q) = nil, want an error", args)
		}
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&release{out: folder}).emptyOut(); err == nil || !strings.Contains(err.Error(), "precious") {
		t.Errorf("a folder with other files: %v, want an error that names one", err)
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
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := section(string(text), unreleased); err != nil {
		t.Errorf("the project's changelog: %v", err)
	} else if _, err := turned(string(text), "999.0.0", time.Unix(testTime, 0)); (err != nil) != (strings.TrimSpace(lines) == "") {
		t.Errorf("the project's changelog: %v", err)
	}
}
