// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// imageFolder is what `make image` has made of this checkout.
const imageFolder = "../../bin/image"

// quicklyPackaged is a folder with the packages of this machine's platform, without a release. The
// binary is that of the image.
var quicklyPackaged = sync.OnceValues(func() (string, error) {
	program := filepath.Join(imageFolder, "overdue_linux_"+runtime.GOARCH, "overdue")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("%w; make image ENGINE= makes it", err)
	}
	out, err := os.MkdirTemp(scratch, "packages")
	if err != nil {
		return "", err
	}
	return out, run(context.Background(), []string{"packages", "-out", out, "-version", testVersion, "-time", fmt.Sprint(testTime), program})
})

// packageFile is a package for this machine: that of the release, or with -short one of
// quicklyPackaged.
func packageFile(t *testing.T, pattern string) string {
	t.Helper()
	var folder string
	if testing.Short() {
		var err error
		if folder, err = quicklyPackaged(); err != nil {
			t.Fatal(err)
		}
	} else {
		folder = filepath.Join(release(t).folder, "bin/release")
	}
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// sdks are the folders of test/sdk/install.sh by name.
func sdks(t *testing.T) map[string]string {
	t.Helper()
	folders := map[string]string{}
	for line := range strings.Lines(command(t, "../../test/sdk/install.sh")) {
		if name, folder, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			folders[name] = folder
		}
	}
	return folders
}

// copySuite copies a suite of examples/testing and its configuration. The suite imports the fixture
// of a package instead of the file beside it.
func copySuite(t *testing.T, to, suite, imported, instead string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures, suite))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), imported) != 1 {
		t.Fatalf("%s does not import %s once", suite, imported)
	}
	config, err := os.ReadFile(filepath.Join(fixtures, "Config.json"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, suite)
	for name, data := range map[string]string{
		file:                             strings.Replace(string(text), imported, instead, 1),
		filepath.Join(to, "Config.json"): string(config),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// passes runs a suite in its folder and looks for the line that counts its tests.
func passes(t *testing.T, suite, want string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = filepath.Dir(suite)
	cmd.Env = append(os.Environ(), append(env, "BROKER_ADDRESS=")...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%q: %v, and the output has to have %q:\n%s", args, err, want, out)
	}
}

func TestThePackageOfNPMHasAllThatASuiteNeeds(t *testing.T) {
	t.Parallel()
	file, folder := packageFile(t, "*_"+runtime.GOOS+"_"+runtime.GOARCH+"_npm.tgz"), t.TempDir()
	command(t, "npm", "install", "--prefix", folder, "--offline", "--no-audit", "--no-fund", file)
	if err := os.Symlink(filepath.Join(sdks(t)["js"], "node_modules/@azure"), filepath.Join(folder, "node_modules/@azure")); err != nil {
		t.Fatal(err)
	}
	suite := copySuite(t, folder, "js/orders.test.mjs", `"./broker.mjs"`, `"overdue"`)
	passes(t, suite, "pass 4", nil, "node", "--test", suite)
	if got := command(t, filepath.Join(folder, "node_modules/.bin/overdue"), "version"); !strings.HasPrefix(got, "overdue ") {
		t.Errorf("the command of the package: %q", got)
	}
}

func TestTheWheelHasAllThatASuiteNeeds(t *testing.T) {
	t.Parallel()
	file, folder := packageFile(t, "*-"+platforms[runtime.GOOS+"_"+runtime.GOARCH].wheelTags[0]+"*.whl"), t.TempDir()
	python, err := filepath.Glob(filepath.Join(sdks(t)["python"], "lib/python*/site-packages"))
	if err != nil || len(python) != 1 {
		t.Fatalf("packages of Python: %q, %v", python, err)
	}
	command(t, "python3", "-m", "venv", folder)
	command(t, filepath.Join(folder, "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-index", file)
	suite := copySuite(t, folder, "python/test_orders.py", "from broker import", "from overdue import")
	passes(t, suite, "Ran 4 tests", []string{"PYTHONPATH=" + python[0]}, filepath.Join(folder, "bin/python"), "-B", suite)
	if got := command(t, filepath.Join(folder, "bin/overdue"), "version"); !strings.HasPrefix(got, "overdue ") {
		t.Errorf("the command of the package: %q", got)
	}
	if got := command(t, filepath.Join(folder, "bin/pip"), "show", "--files", "overdue"); !strings.Contains(got, "Version: "+pythonVersion(testVersion)) || !strings.Contains(got, noticesFile) {
		t.Errorf("pip shows %s", got)
	}
}

func TestPipTakesTheVersionsOfReleases(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0":              "0.1.0",
		"0.2.0-rc.1":         "0.2.0rc1",
		"0.2.0-beta.2":       "0.2.0b2",
		"1.0.0-alpha3+linux": "1.0.0a3+linux",
		"0.1.0-test.1":       "0.1.0.dev0+test.1",
		"0.0.0-dev+0a1b2c":   "0.0.0.dev0+dev.0a1b2c",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("pythonVersion(%s) = %s, want %s", version, got, want)
		}
	}
}
