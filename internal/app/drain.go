// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"os/signal"
	"syscall"
)

// hurryOn cuts a drain short when somebody asks for the end once more, by a signal or by quitquitquit,
// or when a component fails, which is remembered. done ends the watch, and returns that failure.
func (e *environment) hurryOn() (done func() error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	end, ended := make(chan struct{}), make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		defer signal.Stop(again)
		select {
		case <-end:
		case <-e.life.Stopping: // the drain is over
		case <-again:
		case <-e.admin.Quit:
		case failure = <-e.life.Failed:
		}
		e.life.Hurry()
	}()
	return func() error {
		close(end)
		<-ended
		return failure
	}
}
