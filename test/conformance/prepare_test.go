// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"overdue/internal/testing/program"
)

const sdkModule = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// The packages of the SDK that have live tests, by folder.
var packages = []string{".", "internal", "admin"}

// A plan is all that a run needs, so that it does without a network and without a compiler.
type plan struct {
	Folder   string // of the SDK's source, with its test binaries
	Programs map[way]string
	Tests    []liveTest
}

// liveTest is a test, or a subtest, that needs a namespace.
type liveTest struct {
	Package string // folder in the SDK
	Name    string
}

func (t liveTest) String() string {
	if t.Package == "." {
		return "azservicebus." + t.Name
	}
	return t.Package + "." + t.Name
}

// pattern matches this test alone, in the form of go test -run: level by level.
func (t liveTest) pattern() string {
	levels := strings.Split(t.Name, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	return strings.Join(levels, "/")
}

// testProgram runs tests of a package of the SDK.
func (p *plan) testProgram(ctx context.Context, pkg string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.testBinary(pkg), append([]string{"-test.v"}, args...)...)
	cmd.Dir = filepath.Join(p.Folder, pkg)
	return cmd
}

func (p *plan) testBinary(pkg string) string {
	return filepath.Join(p.Folder, filepath.Base(filepath.Join(sdkModule, pkg))+".test")
}

// prepare makes a plan. The module cache is read-only and tests may write next to their source,
// hence the copy.
func prepare(t *testing.T) *plan {
	t.Helper()
	p := &plan{
		Folder: filepath.Join(t.TempDir(), "sdk"),
		// The one with the endpoint, behind which there is a broker, too, has the race detector.
		Programs: map[way]string{wayDirect: program.Build(t), wayRelay: program.Build(t, "-race")},
	}
	out, err := command(t.Context(), "", "go", "mod", "download", "-json", sdkModule)
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatalf("what go mod download says: %v", err)
	}
	if err := os.CopyFS(p.Folder, os.DirFS(module.Dir)); err != nil {
		t.Fatalf("copy the SDK out of the module cache: %v", err)
	}
	if err := makeWritable(p.Folder); err != nil {
		t.Fatal(err)
	}
	live := make([][]liveTest, len(packages))
	g, ctx := errgroup.WithContext(t.Context())
	for i, pkg := range packages {
		g.Go(func() (err error) {
			// As releases are built, whose packages need not be compiled again.
			if _, err = command(ctx, p.Folder, "env", "CGO_ENABLED=0", "go", "test", "-c", "-trimpath", "-o", p.testBinary(pkg), "./"+pkg); err == nil {
				live[i], err = p.findLive(ctx, pkg)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	p.Tests = slices.Concat(live...)
	return p
}

// skippedTest is a line of go test -v about a test that has skipped.
var skippedTest = regexp.MustCompile(`--- SKIP: (\S+) \(`)

// findLive returns the tests of a package that need a namespace. The SDK knows them itself: in
// playback mode they skip. The unit tests, which run along, say nothing about a broker.
func (p *plan) findLive(ctx context.Context, pkg string) (all []liveTest, err error) {
	cmd := p.testProgram(ctx, pkg)
	cmd.Env = append(os.Environ(), "AZURE_RECORD_MODE=playback")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("unit tests of %s: %w\n%s", pkg, err, output)
	}
	for _, line := range skippedTest.FindAllSubmatch(output, -1) {
		all = append(all, liveTest{Package: pkg, Name: string(line[1])})
	}
	return all, nil
}

func makeWritable(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o700)
	})
}

// command runs a program to its end and returns what it wrote to standard output. The error carries
// what it wrote to standard error.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
