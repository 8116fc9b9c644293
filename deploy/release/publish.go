// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checksumsFile has the SHA-256 of every artefact, as sha256sum -c reads it.
const checksumsFile = "checksums.txt"

// materials writes the software bill of materials of one binary, in the form of CycloneDX. The
// binary says which modules it has.
func (r *release) materials(ctx context.Context, b program) error {
	name := filepath.Join(r.out, "overdue_"+r.version+"_"+b.String()+".cdx.json")
	_, err := output(ctx, filepath.Join(r.source, "deploy", "release"), []string{"GOFLAGS="}, "go", "tool", "cyclonedx-gomod",
		"bin", "-json", "-noserial", "-notimestamp", "-std", "-licenses", "-version", "v"+r.version, "-output", name, b.path)
	return err
}

// checksums writes the sums, and has them signed: who trusts the sums trusts all artefacts.
func (r *release) checksums(ctx context.Context) error {
	files, err := under(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		// The layout of the image is in its tar, and the sums of an earlier run are not part of the release.
		if !strings.Contains(f.path, "/") && !strings.HasPrefix(f.path, checksumsFile) {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.path)
		}
	}
	name := filepath.Join(r.out, checksumsFile)
	if err := os.WriteFile(name, []byte(sums.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("overdue %s is in %s:\n%s", r.version, r.out, sums.String())
	if r.sign == "" {
		fmt.Println("Not signed: -sign names the command that signs the checksums; the release workflow sets it.")
		return nil
	}
	quoted := "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	_, err = output(ctx, r.out, nil, "sh", "-ec", strings.ReplaceAll(r.sign, "{}", quoted))
	return err
}
