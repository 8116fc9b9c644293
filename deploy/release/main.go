// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// allPlatforms are those of a release.
const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// A release is what is made, and from what.
type release struct {
	source    string // the checkout
	out       string // the folder for the artefacts, empty at first
	version   string // without the v
	commit    string
	time      time.Time // of the commit; every file has it
	platforms []platform
	sign      string // a shell command with {} for the file of checksums, or nothing

	work  string // a folder that is removed in the end
	cache string // of the compiler for the binaries; empty: the go command's own
}

// A platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// program is the file name of the binary.
func (p platform) program() string {
	if p.os == "windows" {
		return "overdue.exe"
	}
	return "overdue"
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "notes" {
		return notes(args[1:])
	}
	r, err := parse(ctx, args)
	if err != nil {
		return err
	}
	return r.make(ctx)
}

// parse returns the release that the flags describe; git says what they leave out.
func parse(ctx context.Context, args []string) (*release, error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := &release{}
	flags.StringVar(&r.source, "source", "../..", "the checkout")
	flags.StringVar(&r.out, "out", "../../bin/release", "the folder for the artefacts; what is in it is removed")
	flags.StringVar(&r.version, "version", "", "the version, such as 0.1.0; from git's tags when empty")
	flags.StringVar(&r.commit, "commit", "", "the commit; from git when empty")
	seconds := flags.Int64("time", 0, "the time of the commit in seconds since 1970; from git when 0")
	platforms := flags.String("platforms", allPlatforms, "what to build for")
	flags.StringVar(&r.sign, "sign", "", "a shell command that signs the checksums; {} stands for their file")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q: this command takes flags only", flags.Arg(0))
	}
	for _, name := range strings.Split(*platforms, ",") {
		if !slices.Contains(strings.Split(allPlatforms, ","), name) {
			return nil, fmt.Errorf("platform %q: want some of %s", name, allPlatforms)
		}
		os, arch, _ := strings.Cut(name, "/")
		r.platforms = append(r.platforms, platform{os, arch})
	}
	var err error
	if r.source, err = filepath.Abs(r.source); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return nil, err
	}
	if err := r.fromGit(ctx, *seconds); err != nil {
		return nil, err
	}
	return r, r.checkVersion()
}

// fromGit fills in what the flags left out.
func (r *release) fromGit(ctx context.Context, seconds int64) error {
	git := func(args ...string) (string, error) {
		out, err := output(ctx, r.source, nil, "git", args...)
		return strings.TrimSpace(out), err
	}
	var err error
	if r.version == "" {
		tag, failed := git("describe", "--tags", "--exact-match", "--match", "v*")
		if failed == nil {
			r.version = strings.TrimPrefix(tag, "v")
		} else if r.version, err = snapshot(git); err != nil {
			return err
		}
	}
	if r.commit == "" {
		if r.commit, err = git("rev-parse", "HEAD"); err != nil {
			return err
		}
	}
	if seconds == 0 {
		text, err := git("show", "-s", "--format=%ct", "HEAD")
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(text, &seconds); err != nil {
			return fmt.Errorf("time of the commit %q: %w", text, err)
		}
	}
	r.time = time.Unix(seconds, 0).UTC()
	return nil
}

// snapshot is the version of a commit without a tag: before any release, by its commit.
func snapshot(git func(...string) (string, error)) (string, error) {
	short, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", err
	}
	return "0.0.0-dev+" + short, nil
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func (r *release) checkVersion() error {
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("version %q: want one such as 0.1.0 or 0.2.0-rc.1, without a v", r.version)
	}
	return nil
}

// make writes all artefacts.
func (r *release) make(ctx context.Context) (err error) {
	if err := r.emptyOut(); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "overdue-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	shared, err := r.pages(ctx)
	if err != nil {
		return err
	}
	var programs []program
	for _, p := range r.platforms {
		built, err := r.build(ctx, p)
		if err != nil {
			return err
		}
		if err := r.archive(built, shared); err != nil {
			return err
		}
		if err := r.packages(built, shared); err != nil {
			return err
		}
		if err := r.materials(ctx, built); err != nil {
			return err
		}
		programs = append(programs, built)
	}
	if err := r.image(programs); err != nil {
		return err
	}
	return r.checksums(ctx)
}

// emptyOut removes what an earlier release left, and nothing else: the folder is a release, is
// empty, or is not there.
func (r *release) emptyOut() error {
	entries, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, "overdue_") && !strings.HasPrefix(name, checksumsFile) {
			return fmt.Errorf("%s has %s, which is not from a release; name another folder", r.out, name)
		}
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(r.out, e.Name())); err != nil {
			return err
		}
	}
	return os.MkdirAll(r.out, 0o755)
}

// output runs a command and returns what it prints.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, problems.String())
	}
	return string(out), nil
}
