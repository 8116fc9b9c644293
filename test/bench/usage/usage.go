// SPDX-License-Identifier: Apache-2.0

// Package usage reports the processor time and memory of processes.
package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is the processor time that a process has used, in user and system mode; 0 when it is not to
// be had.
func CPU(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks time.Duration
	if fields := strings.Fields(rest); len(fields) > 12 {
		for _, f := range fields[11:13] { // utime, stime
			n, _ := strconv.Atoi(f) // the kernel writes numbers
			ticks += time.Duration(n)
		}
	}
	const tick = 10 * time.Millisecond // USER_HZ, on every architecture that Go runs on
	return ticks * tick
}

// OwnCPU is the same of this process.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Profile takes a processor profile of a process that answers ask at its admin port, while a line
// is measured. wait waits for it, and adds what was allocated since the process began.
func Profile(ask func(path string) (string, error), dir, name string, span time.Duration) (wait func() error) {
	file := filepath.Join(dir, strings.NewReplacer(" ", "_", ",", "", ":", "", "/", "-").Replace(name))
	save := func(path, kind string) error {
		answer, err := ask("/debug/pprof/" + path)
		if err != nil {
			return err
		}
		return os.WriteFile(file+"."+kind+".pprof", []byte(answer), 0o600)
	}
	done := make(chan error, 1)
	go func() { done <- save(fmt.Sprintf("profile?seconds=%d", max(1, int(span.Seconds()))), "cpu") }()
	return func() error { return errors.Join(<-done, save("allocs", "allocs")) }
}
