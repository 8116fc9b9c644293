// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
)

// Spin keeps a processor busy until r ends.
func Spin(r io.Reader) error {
	var ended atomic.Bool
	var err error
	go func() {
		_, err = io.Copy(io.Discard, r)
		ended.Store(true)
	}()
	for !ended.Load() {
	}
	return err
}

// startSpinners starts n processes that each keep a processor busy, at normal priority. They also
// end with this process.
func startSpinners(p *Program, n int) (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, one := range stops {
			err = errors.Join(err, one())
		}
		return err
	}
	for range n {
		cmd := exec.Command(p.Binary, "bench", "spin")
		cmd.Args[0] = "overdue" // the test binary has another name
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start a busy process: %w", err), stop())
		}
		stops = append(stops, func() error { return errors.Join(stdin.Close(), cmd.Wait()) })
	}
	return stop, nil
}
