// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"io"
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

// startSpinners starts n processes that each keep a processor busy, at normal priority.
func startSpinners(p *Program, n int) (stop func() error, err error) {
	var busy []*process
	stop = func() (err error) {
		for _, one := range busy {
			err = errors.Join(err, one.stop())
		}
		return err
	}
	for range n {
		one := &process{}
		if err := one.start("busy process", overdueCommand(p, "bench", "spin"), one.keepLine, one.keepLine); err != nil {
			return nil, errors.Join(err, stop())
		}
		busy = append(busy, one)
	}
	return stop, nil
}
