// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A file is one entry of an archive, a package or an image.
type file struct {
	path string // with slashes, without one in front
	mode os.FileMode
	data []byte
}

// A program is a binary for one platform, with the notices of what is in it.
type program struct {
	platform
	path    string
	binary  []byte
	notices []byte
}

// reproducible are the variables that could change the output; a release sets all of them.
var reproducible = []string{
	"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GODEBUG=", "GOFIPS140=off",
}

// compiler returns the environment in which the go command compiles.
func (r *release) compiler(more ...string) []string {
	if r.cache != "" {
		more = append(more, "GOCACHE="+r.cache)
	}
	return append(slices.Clone(reproducible), more...)
}

// build makes the binary of p.
func (r *release) build(ctx context.Context, p platform) (program, error) {
	b := program{platform: p, path: filepath.Join(r.work, p.String(), p.program())}
	env := r.compiler("GOOS="+p.os, "GOARCH="+p.arch)
	const versions = "overdue/internal/version."
	// Stamps of version control would differ between a checkout and an unpacked source archive.
	_, err := output(ctx, r.source, env, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X "+versions+"release=v"+r.version+" -X "+versions+"commit="+r.commit, "-o", b.path, "./cmd/overdue")
	if err != nil {
		return b, err
	}
	if b.binary, err = os.ReadFile(b.path); err != nil {
		return b, err
	}
	b.notices, err = r.notices(ctx, b)
	return b, err
}

// pages returns the files that are the same for every platform: man pages, completion and texts.
func (r *release) pages(ctx context.Context) ([]file, error) {
	man := filepath.Join(r.work, "man")
	// With -trimpath the test shares its packages with the binary for this machine.
	_, err := output(ctx, r.source, r.compiler(), "go", "test", "-trimpath", "-vet=off", "-count=1", "./cmd/overdue", "-run", "^TestManPagesAreMade$", "-man", man)
	if err != nil {
		return nil, err
	}
	var files []file
	entries, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(man, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"man/" + e.Name(), 0o644, data})
	}
	// The completion scripts come from a binary that runs here.
	here, err := r.build(ctx, platform{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	for shell, name := range map[string]string{"bash": "overdue.bash", "zsh": "_overdue", "fish": "overdue.fish", "powershell": "overdue.ps1"} {
		text, err := output(ctx, r.source, nil, here.path, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completion/" + name, 0o644, []byte(text)})
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "deploy/systemd/overdue.service", "deploy/systemd/overdue.yaml", "docs/reference/overdue.example.yaml"} {
		data, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{strings.TrimPrefix(name, "docs/reference/"), 0o644, data})
	}
	slices.SortFunc(files, byPath)
	return files, nil
}

func byPath(a, b file) int { return strings.Compare(a.path, b.path) }
