// SPDX-License-Identifier: Apache-2.0

// Package usage tells what processes have cost.
package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is the processor time that a process has used, in user and system mode; 0 when it is not to be had.
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
