// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

const (
	noticesFile   = "THIRD_PARTY_NOTICES.txt"
	materialsFile = "overdue.cdx.json"
)

// licenceFile matches the texts that have to go with a copy of a module.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// describe writes the licences and the bill of materials of a binary beside it: release describe
// VERSION BINARY. The binary itself lists its modules, so both are those of what ships.
func describe(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("describe takes a version and the path of a binary")
	}
	version, binary := args[0], args[1]
	if err := checkVersion(version); err != nil {
		return err
	}
	text, err := licences(ctx, binary)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(binary), noticesFile), []byte(text), 0o644); err != nil {
		return err
	}
	_, err = output(ctx, ".", "go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp", "-std", "-licenses",
		"-version", "v"+version, "-output", filepath.Join(filepath.Dir(binary), materialsFile), binary)
	return err
}

// licences returns the texts of Go and of every module in the binary. A module without a licence is
// an error.
func licences(ctx context.Context, binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	root, err := output(ctx, checkout, "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	modules, err := downloaded(ctx, info.Deps)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("Overdue contains the following software. Its own licence is in LICENSE.\n")
	if err := appendLicence(&text, "Go standard library "+info.GoVersion, strings.TrimSpace(root)); err != nil {
		return "", err
	}
	for _, m := range modules {
		if err := appendLicence(&text, m.Path+" "+m.Version, m.Dir); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// appendLicence appends the licence texts in the folder of a module.
func appendLicence(text *strings.Builder, title, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("licences of %s: %w", title, err)
	}
	found := 0
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found++
		fmt.Fprintf(text, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), title, e.Name(), strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n")))
	}
	if found == 0 {
		return fmt.Errorf("%s has no licence that this tool finds in %s", title, folder)
	}
	return nil
}

// A module is where the go command has the source of one.
type module struct{ Path, Version, Dir string }

// downloaded returns the modules with their folders, by path.
func downloaded(ctx context.Context, deps []*debug.Module) ([]module, error) {
	args := []string{"mod", "download", "-json"}
	for _, d := range deps {
		if d.Replace != nil {
			d = d.Replace
		}
		args = append(args, d.Path+"@"+d.Version)
	}
	text, err := output(ctx, checkout, "go", args...)
	if err != nil {
		return nil, err
	}
	var modules []module
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var m module
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}
