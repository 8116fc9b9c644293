// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licenceFile matches the texts that have to go with a copy of a module.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// notices returns the texts of the licences of Go and of every module in the binary. The binary
// itself lists its modules, so the list is that of what ships. A module without a licence is an error.
func (r *release) notices(ctx context.Context, b program) ([]byte, error) {
	info, err := buildinfo.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, r.source, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules, err := r.downloaded(ctx, info.Deps)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	text.WriteString("Overdue contains the following software. Its own licence is in LICENSE.\n")
	if err := notice(&text, "Go standard library "+info.GoVersion, strings.TrimSpace(root)); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if err := notice(&text, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	return []byte(text.String()), nil
}

// notice appends the licence texts in the folder of a module.
func notice(text *strings.Builder, title, folder string) error {
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
func (r *release) downloaded(ctx context.Context, deps []*debug.Module) ([]module, error) {
	args := []string{"mod", "download", "-json"}
	for _, d := range deps {
		if d.Replace != nil {
			d = d.Replace
		}
		args = append(args, d.Path+"@"+d.Version)
	}
	text, err := output(ctx, r.source, reproducible, "go", args...)
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
