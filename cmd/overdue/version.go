// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for a release; see the Makefile.
var release = ""

// version is the release, or what the toolchain knows of the checkout.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

const unknownRevision = "unknown"

// revision is the commit that the program was built from, unknownRevision outside of a checkout.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return unknownRevision
}

// versionLine says what this is. A build outside of a checkout, as that of an image is, knows no commit; its release names it.
func versionLine() string {
	commit := ""
	if r := revision(); r != unknownRevision {
		commit = ", commit " + r
	}
	return fmt.Sprintf("overdue %s%s, %s %s/%s", version(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.stdout, versionLine())
			return err
		},
	}
}
