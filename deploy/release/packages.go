// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The modules of the packages bind the fixture to the program beside it.
var (
	//go:embed packages/index.mjs
	npmModule []byte
	//go:embed packages/index.d.mts
	npmTypes []byte
	//go:embed packages/__init__.py
	wheelModule []byte
)

// fixtures are where the fixtures of examples/testing are.
const fixtures = checkout + "/examples/testing"

// A platform is how npm and pip call the one of a binary.
type platform struct {
	npmOS, npmCPU string
	wheelTags     []string
}

// Go builds binaries that need no C library, so they run with that of any Linux. Its oldest macOS
// is 12.
var platforms = map[string]platform{
	"linux_amd64":   {"linux", "x64", []string{"manylinux_2_17_x86_64", "musllinux_1_1_x86_64"}},
	"linux_arm64":   {"linux", "arm64", []string{"manylinux_2_17_aarch64", "musllinux_1_1_aarch64"}},
	"darwin_amd64":  {"darwin", "x64", []string{"macosx_12_0_x86_64"}},
	"darwin_arm64":  {"darwin", "arm64", []string{"macosx_12_0_arm64"}},
	"windows_amd64": {"win32", "x64", []string{"win_amd64"}},
	"windows_arm64": {"win32", "arm64", []string{"win_arm64"}},
}

// packages are those of npm and pip for one platform, with its binary and a fixture.
type packages struct {
	version string
	out     string    // the folder that they go to
	time    time.Time // every file has it
}

// A packed file is one of a package.
type packed struct {
	name string
	mode int64
	data []byte
}

// makePackages makes them of a binary, with what describe wrote beside it: release packages FLAGS
// BINARY.
func makePackages(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("release packages", flag.ContinueOnError)
	p := packages{}
	flags.StringVar(&p.out, "out", "", "the folder for the packages")
	flags.StringVar(&p.version, "version", "", "the version, such as 0.1.0")
	seconds := flags.Int64("time", 0, "the time of the commit in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("packages takes the path of a binary")
	}
	if err := checkVersion(p.version); err != nil {
		return err
	}
	p.time = time.Unix(*seconds, 0).UTC()
	program := flags.Arg(0)
	folder := filepath.Dir(program)
	name := strings.Join(strings.Split(filepath.Base(folder)+"__", "_")[1:3], "_") // overdue_linux_amd64_v1
	on, ok := platforms[name]
	if !ok {
		return fmt.Errorf("%s: npm and pip have no name for the platform %q", folder, name)
	}
	files := []packed{
		{filepath.Base(program), 0o755, nil},
		{"LICENSE", 0o644, nil},
		{noticesFile, 0o644, nil},
	}
	for i, source := range []string{program, filepath.Join(checkout, "LICENSE"), filepath.Join(folder, noticesFile)} {
		var err error
		if files[i].data, err = os.ReadFile(source); err != nil {
			return err
		}
	}
	return errors.Join(
		p.writeNPM(fmt.Sprintf("overdue_%s_%s_npm.tgz", p.version, name), on, files[0], files[1:]),
		p.writeWheel(on, files[0], files[1:]),
	)
}

// writeNPM writes what `npm install` takes.
func (p packages) writeNPM(name string, on platform, binary packed, licences []packed) error {
	description, err := json.MarshalIndent(map[string]any{
		"name":        "overdue",
		"version":     p.version,
		"description": imageAbout,
		"license":     "Apache-2.0",
		"type":        "module",
		"exports":     "./index.mjs", // TypeScript finds index.d.mts beside it
		"bin":         map[string]string{"overdue": binary.name},
		"os":          []string{on.npmOS},
		"cpu":         []string{on.npmCPU},
		"engines":     map[string]string{"node": ">=18"},
	}, "", "  ")
	if err != nil {
		return err
	}
	fixture, err := os.ReadFile(fixtures + "/js/broker.mjs")
	if err != nil {
		return err
	}
	files := append([]packed{
		{"package.json", 0o644, description},
		{"index.mjs", 0o644, npmModule},
		{"index.d.mts", 0o644, npmTypes},
		{"broker.mjs", 0o644, fixture},
		binary,
	}, licences...)
	return p.write(name, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		t := tar.NewWriter(z)
		for _, f := range files {
			if err := (image{time: p.time}).addData(t, "package/"+f.name, f.mode, f.data); err != nil {
				return err
			}
		}
		return errors.Join(t.Close(), z.Close())
	})
}

// writeWheel writes what `pip install` takes: a zip that lists its files and their sums.
func (p packages) writeWheel(on platform, binary packed, licences []packed) error {
	version := pythonVersion(p.version)
	fixture, err := os.ReadFile(fixtures + "/python/broker.py")
	if err != nil {
		return err
	}
	info := "overdue-" + version + ".dist-info/"
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: overdue\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\nRequires-Python: >=3.9\n", version, imageAbout)
	wheel := "Wheel-Version: 1.0\nGenerator: overdue\nRoot-Is-Purelib: false\n"
	for _, tag := range on.wheelTags {
		wheel += "Tag: py3-none-" + tag + "\n"
	}
	binary.name = "overdue-" + version + ".data/scripts/" + binary.name
	files := []packed{
		{"overdue/__init__.py", 0o644, wheelModule},
		{"overdue/broker.py", 0o644, fixture},
		binary,
		{info + "METADATA", 0o644, []byte(metadata)},
		{info + "WHEEL", 0o644, []byte(wheel)},
	}
	for _, l := range licences {
		files = append(files, packed{info + "licenses/" + l.name, l.mode, l.data})
	}
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, packed{info + "RECORD", 0o644, []byte(record.String())})
	return p.write("overdue-"+version+"-py3-none-"+strings.Join(on.wheelTags, ".")+".whl", func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, f := range files {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: p.time}
			header.SetMode(os.FileMode(f.mode))
			entry, err := z.CreateHeader(header)
			if err != nil {
				return err
			}
			if _, err := entry.Write(f.data); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

func (p packages) write(name string, content func(io.Writer) error) error {
	out, err := os.Create(filepath.Join(p.out, name))
	if err != nil {
		return err
	}
	return errors.Join(content(out), out.Close())
}

var (
	preRelease   = regexp.MustCompile(`^(a|b|rc)\.?(\d+)$`)
	separators   = regexp.MustCompile(`[^0-9a-z]+`)
	pythonLetter = strings.NewReplacer("alpha", "a", "beta", "b")
)

// pythonVersion is a version as pip spells it: 0.2.0rc1 for 0.2.0-rc.1. A pre-release that pip does
// not know is one of development, with its name behind a plus.
func pythonVersion(version string) string {
	version, build, _ := strings.Cut(version, "+")
	version, pre, _ := strings.Cut(version, "-")
	local := build
	if m := preRelease.FindStringSubmatch(pythonLetter.Replace(strings.ToLower(pre))); m != nil {
		version += m[1] + m[2]
	} else if pre != "" {
		version += ".dev0"
		local = strings.Trim(pre+"."+build, ".")
	}
	if local != "" {
		version += "+" + strings.Trim(separators.ReplaceAllString(strings.ToLower(local), "."), ".")
	}
	return version
}
