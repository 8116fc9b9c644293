// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// inArchive returns the folder of the unpacked archive for this machine, and the modules of its binary.
func inArchive(t *testing.T) (folder string, modules map[string]string) {
	t.Helper()
	unpacked := t.TempDir()
	command(t, "tar", "-xzf", artefact(t, ".tar.gz"), "-C", unpacked)
	folder = filepath.Join(unpacked, "overdue_"+testVersion+"_"+runtime.GOOS+"_"+runtime.GOARCH)
	info, err := buildinfo.ReadFile(filepath.Join(folder, "overdue"))
	if err != nil {
		t.Fatal(err)
	}
	modules = map[string]string{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules[m.Path] = m.Version
	}
	if len(modules) < 20 {
		t.Fatalf("the binary has %d modules, want those of the SDK at least", len(modules))
	}
	return folder, modules
}

func TestNoticesNameEveryModule(t *testing.T) {
	folder, modules := inArchive(t)
	text, err := os.ReadFile(filepath.Join(folder, noticesFile))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n"+strings.Repeat("=", 80)+"\n")
	long := func(title string) bool {
		for _, s := range sections {
			if first, rest, _ := strings.Cut(s, "\n"); strings.HasPrefix(first, title+", ") && len(rest) > 500 {
				return true
			}
		}
		return false
	}
	for name, version := range modules {
		if !long(name + " " + version) {
			t.Errorf("no licence text of %s %s", name, version)
		}
	}
	if !long("Go standard library " + runtime.Version()) {
		t.Error("no licence text of Go")
	}
	if err := appendLicence(&strings.Builder{}, "a module without a licence", t.TempDir()); err == nil {
		t.Error("a module without a licence is no error")
	}
}

func TestTheBillOfMaterialsNamesEveryModule(t *testing.T) {
	_, modules := inArchive(t)
	f, err := os.Open(artefact(t, ".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it is only read
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c == nil || c.Version != "v"+testVersion {
		t.Errorf("it describes %+v, want version v%s", c, testVersion)
	}
	listed := map[string]string{}
	for _, c := range *bom.Components {
		listed[c.Name] = c.Version
	}
	for name, version := range modules {
		if listed[name] != version {
			t.Errorf("%s is listed as %q, want %q", name, listed[name], version)
		}
	}
	if want := strings.TrimPrefix(runtime.Version(), "go"); !strings.Contains(listed["std"], want) {
		t.Errorf("the standard library is listed as %q, want %s", listed["std"], want)
	}
}

// Help, errors and findings name pages of the documentation by their paths, and the package has them
// there.
func TestThePackageHasThePagesThatTheProgramNames(t *testing.T) {
	contents, err := os.ReadFile(filepath.Join(checkout, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, m := range regexp.MustCompile(`src: "?([^",]+)"?, dst: /usr/share/doc/overdue/`).FindAllStringSubmatch(string(contents), -1) {
		sources = append(sources, m[1])
	}
	page := regexp.MustCompile(`docs/[\w/-]+\.md`)
	named := 0
	err = filepath.WalkDir(checkout, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			line, _, _ = strings.Cut(line, " // ")
			for _, name := range page.FindAllString(line, -1) {
				named++
				in := func(source string) bool { ok, _ := path.Match(source, name); return ok }
				if _, err := os.Stat(filepath.Join(checkout, name)); err != nil || !slices.ContainsFunc(sources, in) {
					t.Errorf("%s names %s, which is not in the package (%v)", file, name, err)
				}
			}
		}
		return nil
	})
	if err != nil || named < 10 {
		t.Errorf("the program names %d pages (%v), want ten at least", named, err)
	}
}

// A workflow runs make targets, so that each step can be tried on any machine.
func TestWorkflowsRunTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(workflows) < 3 {
		t.Fatalf("workflows %q, %v, want those for test, release and CodeQL", workflows, err)
	}
	target := regexp.MustCompile(`\bmake((?: --?[a-z-]+)*) ([a-z][a-z -]*)`)
	for _, name := range workflows {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := target.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s runs no target", name)
		}
		for _, m := range found {
			for _, name := range strings.Fields(m[2]) {
				if !strings.Contains(string(makefile), "\n"+name+": ") {
					t.Errorf("%s: no target %q", m[0], name)
				}
			}
		}
	}
}
