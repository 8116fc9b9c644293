// SPDX-License-Identifier: Apache-2.0

// Package version says which release, or which commit, a binary was built from.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker for a release; see the Makefile.
var release = ""

// commit is set by the linker for a release, which is built without the stamps of version control.
var commit = ""

// String is the release, or what the toolchain knows of the checkout.
func String() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// Module is the version of a module that this program is built with.
func Module(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "(devel)"
}

const unknownRevision = "unknown"

// Revision is the commit that the program was built from, unknownRevision outside of a checkout.
func Revision() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return unknownRevision
}

// Line says what this is. A build outside of a checkout, as that of an image is, knows no commit;
// its release names it.
func Line() string {
	built := ""
	if r := Revision(); r != unknownRevision {
		built = ", commit " + r
	}
	return fmt.Sprintf("overdue %s%s, %s %s/%s", String(), built, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
