// SPDX-License-Identifier: Apache-2.0

// Command release does what goreleaser has no step for. It makes the licences and the bill of
// materials of a binary, the images, the packages of npm and pip, and the sections of the changelog.
// The rest of a release is in .goreleaser.yaml.
//
// The same commit gives the same bytes on every machine with the same Go. Each file has the time of
// the commit, lists are sorted, and no path of the machine gets into the output. It is a module of
// its own, so that the program's go.mod lists what ships and nothing else. It runs in its folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
)

// checkout is where the files of the project are.
const checkout = "../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"describe": describe,
		"image":    makeImage,
		"notes":    notes,
		"packages": makePackages,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("%q: want describe, image, notes or packages", args)
	}
	return commands[args[0]](ctx, args[1:])
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func checkVersion(version string) error {
	if !semantic.MatchString(version) {
		return fmt.Errorf("version %q: want one such as 0.1.0 or 0.2.0-rc.1, without a v", version)
	}
	return nil
}

// output runs a command and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, problems.String())
	}
	return string(out), nil
}
