// SPDX-License-Identifier: Apache-2.0

// Package testseed gives randomised tests their seeds.
//
// A test runs with the same seed every time, so that a change is judged by what it changes and not
// by the luck of the day. Luck has its own turn: OVERDUE_SEED=random makes every run another one,
// as `make soak` does, and OVERDUE_SEED=<number> runs one again.
package testseed

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// variable is the environment variable that chooses the seed.
const variable = "OVERDUE_SEED"

// checks is how often rapid tries a property, unless -rapid.checks says otherwise.
const checks = "60"

// Of is the seed of t, which it logs: that of the environment, or else one that t has by its name.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := choose(os.Getenv(variable), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%d", variable, seed)
	return seed
}

// Chosen reports whether the environment chooses seeds: somebody looks for what the fixed ones do
// not show, and has time.
func Chosen() bool { return os.Getenv(variable) != "" }

// Rapid gives the tests of a package that use rapid their seed. It belongs into TestMain, before
// m.Run, which parses the command line: -rapid.seed still wins.
func Rapid() {
	seed, err := choose(os.Getenv(variable), "rapid")
	if err == nil {
		err = errors.Join(flag.Set("rapid.seed", strconv.FormatUint(seed, 10)), flag.Set("rapid.checks", checks))
	}
	if err != nil {
		panic(err)
	}
}

func choose(text, name string) (uint64, error) {
	switch text {
	case "":
		h := fnv.New64a()
		h.Write([]byte(name))
		return h.Sum64(), nil
	case "random":
		return rand.Uint64(), nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s must be a number or random, not %q", variable, text)
	}
	return seed, nil
}
