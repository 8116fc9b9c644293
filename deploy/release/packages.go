// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the deb and the rpm of a Linux platform.
func (r *release) packages(b program, shared []file) error {
	if b.os != "linux" {
		return nil
	}
	contents, err := r.contents(b, shared)
	if err != nil {
		return err
	}
	scripts := filepath.Join(r.source, "deploy", "systemd")
	for kind, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "overdue", Arch: b.arch, Platform: "linux", Version: r.version, Release: "1", MTime: r.time,
			Section: "net", Priority: "optional", License: "Apache-2.0", Maintainer: "The Overdue authors <overdue@localhost>",
			Description: "Dead-letters Azure Service Bus messages at their deadlines\n" +
				"Overdue is a proxy beside an app, a monitor, and a broker for tests, in one program.\n" +
				"It expires overdue messages even while no consumer is connected, and sends alerts.",
			Overridables: nfpm.Overridables{
				Contents: contents,
				Scripts: nfpm.Scripts{
					PostInstall: filepath.Join(scripts, "postinstall.sh"),
					PreRemove:   filepath.Join(scripts, "preremove.sh"),
					PostRemove:  filepath.Join(scripts, "postremove.sh"),
				},
				RPM: nfpm.RPM{BuildHost: "localhost", Summary: "Dead-letters Azure Service Bus messages at their deadlines"},
			},
		})
		if err := nfpm.PrepareForPackager(info, kind); err != nil {
			return fmt.Errorf("%s of %s: %w", kind, b, err)
		}
		name := "overdue_" + r.version + "_" + b.String() + "." + kind
		if err := r.write(name, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// contents are the files of a package, at the places where Linux has them. nfpm reads them from a
// folder, so they are written to one.
func (r *release) contents(b program, shared []file) (files.Contents, error) {
	all := files.Contents{
		{Destination: "/etc/overdue", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
	}
	add := func(f file, destination, kind string) error {
		source := filepath.Join(r.work, b.String(), "package", filepath.FromSlash(destination))
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		all = append(all, &files.Content{Source: source, Destination: destination, Type: kind, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.time}})
		return os.WriteFile(source, f.data, f.mode)
	}
	for _, f := range append(shared, file{"overdue", 0o755, b.binary}, file{noticesFile, 0o644, b.notices}) {
		destination, kind := installed(f.path), files.TypeFile
		if destination == "" {
			continue
		}
		if strings.HasPrefix(destination, "/etc/") {
			kind = files.TypeConfigNoReplace
		}
		if err := add(f, destination, kind); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// installed says where a file of the archive is on Linux, or nothing where it has no place there.
func installed(name string) string {
	base := path.Base(name)
	switch {
	case name == "overdue":
		return "/usr/bin/overdue"
	case path.Dir(name) == "man":
		return "/usr/share/man/man1/" + base
	case name == "completion/overdue.bash":
		return "/usr/share/bash-completion/completions/overdue"
	case name == "completion/_overdue":
		return "/usr/share/zsh/vendor-completions/_overdue"
	case name == "completion/overdue.fish":
		return "/usr/share/fish/vendor_completions.d/overdue.fish"
	case name == "deploy/systemd/overdue.service":
		return "/usr/lib/systemd/system/overdue.service"
	case name == "deploy/systemd/overdue.yaml":
		return "/etc/overdue/overdue.yaml"
	case name == "LICENSE": // where Debian looks for it
		return "/usr/share/doc/overdue/copyright"
	case path.Dir(name) == "." && name != "README.md":
		return "/usr/share/doc/overdue/" + base
	}
	return ""
}
