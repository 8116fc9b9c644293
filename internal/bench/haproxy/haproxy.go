// SPDX-License-Identifier: Apache-2.0

// Package haproxy runs HAProxy in TCP mode, for comparison.
package haproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// config is HAProxy in TCP mode with the settings that it requires, on a listener that it
// inherits. %s is the address of the broker.
const config = `defaults
	mode tcp
	timeout connect 10s
	timeout client 1h
	timeout server 1h
listen bench
	bind fd@3
	server broker %s
`

// leash starts a program and ends it by its process id when standard input ends, which follows
// every end of the measuring process. It closes its own copy of the listener: if HAProxy fails,
// connections must fail too, and not wait for ever.
const leash = `"$@" & pid=$!; exec 3>&-; echo $pid; read -r _; kill $pid 2>/dev/null; wait $pid; exit 0`

// stopTimeout bounds the stop of HAProxy, and the query of its version.
const stopTimeout = 10 * time.Second

// A Process is HAProxy in TCP mode in front of an address, as a process of its own.
type Process struct {
	Address string
	PID     int
	cmd     *exec.Cmd
	stdin   io.Closer
	dir     string
	log     *os.File // in dir
}

// Version returns the version of the installed HAProxy, or "" if none is installed.
func Version(ctx context.Context) (string, error) {
	path, err := exec.LookPath("haproxy")
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find HAProxy: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, stopTimeout)
	defer stop()
	text, err := exec.CommandContext(ctx, path, "-v").Output()
	if err != nil {
		return "", fmt.Errorf("ask HAProxy for its version: %w", err)
	}
	_, version, ok := strings.Cut(string(text), "ersion ")
	if fields := strings.Fields(version); ok && len(fields) > 0 {
		return fields[0], nil
	}
	return "", fmt.Errorf("ask HAProxy for its version: unexpected answer %.60q", text)
}

// Start starts HAProxy in front of an address. HAProxy inherits the listener, so the port is
// certainly free, and early connections wait until it is ready.
func Start(to string) (_ *Process, err error) {
	h := &Process{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start HAProxy: %w", err), h.clean())
		}
	}()
	if h.dir, err = os.MkdirTemp("", "overdue-bench-"); err != nil {
		return nil, err
	}
	file := filepath.Join(h.dir, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, to), 0o600); err != nil {
		return nil, err
	}
	if h.log, err = os.Create(filepath.Join(h.dir, "log")); err != nil {
		return nil, err
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	inherited, err := ln.File()
	_ = ln.Close() // inherited is a copy
	if err != nil {
		return nil, err
	}
	defer func() { _ = inherited.Close() }() // HAProxy has a copy
	h.Address = ln.Addr().String()
	h.cmd = exec.Command("sh", "-c", leash, "sh", "haproxy", "-db", "-f", file)
	h.cmd.ExtraFiles = []*os.File{inherited}
	h.cmd.Stderr = h.log
	stdin, err := h.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	h.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		h.PID, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// Stop ends HAProxy and waits until it has.
func (h *Process) Stop() error {
	closeErr := h.stdin.Close()
	// then Wait reports it
	stuck := time.AfterFunc(stopTimeout, func() { _ = h.cmd.Process.Kill() })
	defer stuck.Stop()
	err := errors.Join(closeErr, h.cmd.Wait())
	if err != nil {
		err = errors.Join(fmt.Errorf("stop HAProxy: %w", err), h.Complaint())
	}
	return errors.Join(err, h.clean())
}

// clean removes the files.
func (h *Process) clean() (err error) {
	if h.log != nil {
		err = h.log.Close()
		h.log = nil
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// Complaint returns the log of HAProxy as an error, or nil if it is empty.
func (h *Process) Complaint() error {
	if h.log == nil {
		return nil
	}
	text, err := os.ReadFile(h.log.Name())
	if err != nil {
		return fmt.Errorf("read the log of HAProxy: %w", err)
	}
	if len(text) == 0 {
		return nil
	}
	return fmt.Errorf("log of HAProxy: %.2000s", strings.TrimSpace(string(text)))
}
