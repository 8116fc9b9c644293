// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute // RabbitMQ takes five seconds
	stopTimeout  = 30 * time.Second
)

// errMissing: the peer's program is not installed.
var errMissing = errors.New("not installed; `make peers` installs it when run as root")

// leashed is a shell's program that runs another until standard input ends, as it does when this
// process ends, however.
const leashed = `"$@" & pid=$!; read -r _; kill $pid; wait $pid`

// A command is a server to start.
type command struct {
	args []string
	env  []string            // nil: that of this process
	as   *syscall.Credential // nil: the same user
	addr string              // where it listens when it is ready, "" when nobody waits for that
}

// start starts a server, and returns when it can be connected to.
func (c command) start(ctx context.Context) (stop func() error, err error) {
	if _, err := exec.LookPath(c.args[0]); err != nil {
		return nil, fmt.Errorf("%s: %w", c.args[0], errMissing)
	}
	var out bytes.Buffer // read only after the server has ended
	cmd := exec.Command("sh", append([]string{"-c", leashed, "sh"}, c.args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	cmd.WaitDelay = time.Second // a grandchild may hold its output
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.args[0], err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // of a signal, mostly
		close(ended)
	}()
	stop = func() error {
		_ = leash.Close() // which fails when the shell has ended
		select {
		case <-ended:
			return nil
		case <-time.After(stopTimeout):
			_ = cmd.Process.Kill()
			<-ended
			return fmt.Errorf("%s did not stop within %v", c.args[0], stopTimeout)
		}
	}
	if c.addr == "" {
		return stop, nil
	}
	for deadline := time.Now().Add(startTimeout); ; {
		nc, err := net.Dial("tcp", c.addr)
		if err == nil {
			return stop, nc.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-ended:
			return nil, fmt.Errorf("%s has ended: %s", c.args[0], tail(out.String()))
		}
		if time.Now().After(deadline) {
			err = errors.Join(fmt.Errorf("%s does not serve after %v: %w", c.args[0], startTimeout, err), stop())
			return nil, fmt.Errorf("%w: %s", err, tail(out.String()))
		}
	}
}

// tail is the end of an output.
func tail(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-1000):]
}

// freePort is a port of loopback that nobody listens on.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, errors.Join(err, ln.Close())
}
