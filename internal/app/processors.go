// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"runtime"

	"overdue/internal/config"
)

// useProcessors has Go run one goroutine more at a time than there are processors, where a monitor
// runs. Otherwise a nudge that is due waits for up to 10 ms while checks, notifications and the
// garbage collector have all processors, and longer where other processes want them too. The
// system runs a thread that has slept before those.
//
// It leaves a limit of the container alone, which an additional thread would only use up sooner,
// and the variable GOMAXPROCS.
func useProcessors(r config.Role) {
	n := runtime.GOMAXPROCS(0)
	if _, chosen := os.LookupEnv("GOMAXPROCS"); r.Monitor && !chosen && n == runtime.NumCPU() {
		runtime.GOMAXPROCS(n + 1)
	}
}
