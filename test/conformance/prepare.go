// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

const sdkModule = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// The packages of the SDK that have live tests, by folder.
var packages = []string{".", "internal", "admin"}

// Files of the prepared folder.
const (
	sdkDir   = "sdk"       // the SDK's source
	planFile = "plan.json" // the live tests
	// The program behind go tool test2json, which the go command would look up again for each test.
	eventsFile = "test2json"
)

// liveTest is a test, or a subtest, that needs a namespace.
type liveTest struct {
	Package string // folder in the SDK
	Name    string
}

func (t liveTest) String() string { return qualified(t.Package, t.Name) }

// pattern matches this test alone, in the form of go test -run: level by level.
func (t liveTest) pattern() string {
	levels := strings.Split(t.Name, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	return strings.Join(levels, "/")
}

// qualified names a test or a subtest of it, the package of the SDK in front.
func qualified(pkg, name string) string {
	if pkg == "." {
		pkg = "azservicebus"
	}
	return pkg + "." + name
}

// testBinary is the path of a package's test binary in the prepared folder.
func testBinary(dir, pkg string) string {
	return filepath.Join(dir, filepath.Base(filepath.Join(sdkModule, pkg))+".test")
}

// prepare fills dir with all that a run needs, so that the run does without a network and without a
// compiler. The module cache is read-only and tests may write next to their source, hence the copy.
func prepare(ctx context.Context, dir string) error {
	out, err := command(ctx, "", "go", "mod", "download", "-json", sdkModule)
	if err != nil {
		return err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("what go mod download says: %w", err)
	}
	sdk := filepath.Join(dir, sdkDir)
	if err := os.CopyFS(sdk, os.DirFS(module.Dir)); err != nil {
		return fmt.Errorf("copy the SDK out of the module cache: %w", err)
	}
	if err := makeWritable(sdk); err != nil {
		return err
	}
	if _, err := command(ctx, "", "go", "build", "-o", filepath.Join(dir, eventsFile), "cmd/test2json"); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range []way{wayDirect, wayRelay} {
		g.Go(func() error {
			args := []string{"build", "-o", w.program(dir)}
			if w == wayRelay { // behind which there is a broker, too
				args = append(args, "-race")
			}
			_, err := command(ctx, "", "go", append(args, "overdue/cmd/overdue")...)
			return err
		})
	}
	live := make([][]liveTest, len(packages))
	for i, pkg := range packages {
		g.Go(func() error {
			// As releases are built, whose packages need not be compiled again.
			if _, err := command(ctx, sdk, "env", "CGO_ENABLED=0", "go", "test", "-c", "-trimpath", "-o", testBinary(dir, pkg), "./"+pkg); err != nil {
				return err
			}
			live[i], err = findLive(ctx, dir, pkg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	plan, err := json.Marshal(slices.Concat(live...))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, planFile), plan, 0o600)
}

// findLive returns the tests of a package that need a namespace. The SDK knows them itself: in
// playback mode they skip. The unit tests, which run along, say nothing about a broker.
func findLive(ctx context.Context, dir, pkg string) ([]liveTest, error) {
	results, output, err := execute(ctx, dir, pkg, append(os.Environ(), "AZURE_RECORD_MODE=playback"))
	if err != nil {
		return nil, fmt.Errorf("unit tests of %s: %w\n%s", pkg, err, output)
	}
	var tests []liveTest
	for _, r := range results {
		if r.Outcome == skipped {
			tests = append(tests, liveTest{Package: pkg, Name: r.Name})
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("no live test found in %s of the SDK", pkg)
	}
	return tests, nil
}

func readPlan(dir string) ([]liveTest, error) {
	data, err := os.ReadFile(filepath.Join(dir, planFile))
	if err != nil {
		return nil, err
	}
	var tests []liveTest
	if err := json.Unmarshal(data, &tests); err != nil {
		return nil, fmt.Errorf("%s: %w", planFile, err)
	}
	return tests, nil
}

func makeWritable(root string) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o700)
	})
}

// command runs a program to its end and returns what it wrote to standard output. The
// error carries what it wrote to standard error.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
