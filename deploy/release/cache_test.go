// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Compiling the standard library and other modules for six platforms takes most of the time of a
// release. What `make release-check` has to find is a path, a time or an order of ours in what it
// builds. So both builds start with caches of the compiler that hold packages of others and none of
// this module: each of them compiles and links this module by itself. For the platform of this
// machine the second build gets nothing and compiles what others wrote as well.
//
// What that leaves out: a compiler whose output for a package of others, for another platform
// than this one, differs from run to run or with the path of the cache. Go's builds have the same
// compiler for all platforms, and its project publishes that its releases can be repeated.

// caches returns the caches of the first build and of the second one.
func caches(ctx context.Context, source string) ([2]string, error) {
	both := [2]string{filepath.Join(scratch, "cache"), filepath.Join(scratch, "another cache")}
	user, err := os.UserCacheDir()
	if err != nil {
		return both, err
	}
	// The packages of others stay on this machine for the next check; the go command removes what is not used.
	kept := filepath.Join(user, "overdue", "release")
	here := runtime.GOOS + "/" + runtime.GOARCH
	for _, name := range strings.Split(allPlatforms, ",") {
		folder := filepath.Join(kept, "elsewhere")
		if name == here {
			folder = filepath.Join(kept, "here")
		}
		if err := others(ctx, source, name, folder); err != nil {
			return both, err
		}
	}
	for i, folders := range [2][]string{{"here", "elsewhere"}, {"elsewhere"}} {
		if err := os.Mkdir(both[i], 0o755); err != nil {
			return both, err
		}
		for _, folder := range folders {
			if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(kept, folder)+"/.", both[i]).CombinedOutput(); err != nil {
				return both, fmt.Errorf("cp: %w\n%s", err, out)
			}
		}
	}
	return both, nil
}

// others compiles the packages of others that the binary has on a platform.
func others(ctx context.Context, source, platform, cache string) error {
	system, arch, _ := strings.Cut(platform, "/")
	env := append(slices.Clone(reproducible), "GOOS="+system, "GOARCH="+arch, "GOCACHE="+cache)
	list, err := output(ctx, source, env, "go", "list", "-deps", "-f", `{{if not (and .Module .Module.Main)}}{{.ImportPath}}{{end}}`, "./cmd/overdue")
	if err != nil {
		return err
	}
	// Internal and vendored packages come along with those that import them.
	packages := slices.DeleteFunc(strings.Fields(list), func(name string) bool {
		return strings.HasPrefix(name, "vendor/") || slices.Contains(strings.Split(name, "/"), "internal")
	})
	// What compiles differently with other flags is another entry of the cache, so these are those of build.
	_, err = output(ctx, source, env, "go", append([]string{"build", "-trimpath", "-buildvcs=false"}, packages...)...)
	return err
}
