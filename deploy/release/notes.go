// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const unreleased = "## Unreleased"

// notes prints the section of a version in the changelog, or with -turn makes it from the section
// Unreleased, which is empty afterwards.
func notes(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("release notes", flag.ContinueOnError)
	version := flags.String("version", "", "the version, such as 0.1.0")
	turn := flags.Bool("turn", false, "change CHANGELOG.md: what is unreleased becomes the section of the version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(*version); err != nil {
		return err
	}
	name := filepath.Join(checkout, "CHANGELOG.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if *turn {
		turned, err := turned(string(text), *version, time.Now())
		if err != nil {
			return err
		}
		return os.WriteFile(name, []byte(turned), 0o644)
	}
	section, err := section(string(text), "## "+*version+" ")
	fmt.Print(section)
	return err
}

// turned is the changelog after a release: its unreleased lines have a version and a day.
func turned(text, version string, day time.Time) (string, error) {
	if strings.Contains(text, "\n## "+version+" ") {
		return "", fmt.Errorf("the changelog has version %s already", version)
	}
	lines, err := section(text, unreleased)
	if err != nil {
		return "", err
	}
	// Only the first release says that there was none before.
	if first, rest, ok := strings.Cut(lines, "\n\n"); ok && strings.HasPrefix(first, "Nothing has been released yet.") {
		lines = rest
	}
	if strings.TrimSpace(lines) == "" {
		return "", errors.New("the changelog has nothing unreleased")
	}
	before, after, _ := strings.Cut(text, unreleased+"\n")
	_, rest, more := strings.Cut(after, "\n## ")
	out := before + unreleased + "\n\n## " + version + " (" + day.UTC().Format(time.DateOnly) + ")\n\n" + strings.Trim(lines, "\n") + "\n"
	if more {
		out += "\n## " + rest
	}
	return out, nil
}

// section returns the lines below a heading, up to the next heading of its level.
func section(text, heading string) (string, error) {
	_, after, found := strings.Cut("\n"+text, "\n"+heading)
	if !found {
		return "", fmt.Errorf("the changelog has no section %q", strings.TrimSpace(heading))
	}
	_, after, _ = strings.Cut(after, "\n")
	lines, _, _ := strings.Cut(after, "\n## ")
	return strings.Trim(lines, "\n") + "\n", nil
}
