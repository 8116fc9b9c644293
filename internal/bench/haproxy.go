// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// haproxyConfig is HAProxy in TCP mode with the settings that it requires, on a listener that it
// inherits. %s is the address of the broker.
const haproxyConfig = `defaults
	mode tcp
	timeout connect 10s
	timeout client 1h
	timeout server 1h
listen bench
	bind fd@3
	server broker %s
`

// haproxyLeash starts a program and ends it by its process id when standard input ends. It closes
// its own copy of the listener: if HAProxy fails, connections must fail too, and not wait for ever.
const haproxyLeash = `"$@" & pid=$!; exec 3>&-; echo $pid; read -r _; kill $pid 2>/dev/null; wait $pid; exit 0`

// haproxyTimeout bounds the start of HAProxy, and the query of its version.
const haproxyTimeout = 10 * time.Second

// haproxyProcess is HAProxy in TCP mode in front of an address.
type haproxyProcess struct {
	process
	address string
	pid     int // of HAProxy, which the process holds on a leash
}

// haproxyVersion returns the version of the installed HAProxy, or "" if none is installed.
func haproxyVersion(ctx context.Context) (string, error) {
	path, err := exec.LookPath("haproxy")
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find HAProxy: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, haproxyTimeout)
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

// startHAProxy starts HAProxy in front of an address. HAProxy inherits the listener, so the port is
// certainly free, and early connections wait until it is ready.
func startHAProxy(to string) (_ *haproxyProcess, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start HAProxy: %w", err)
		}
	}()
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
	config, text, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = config.Close() }()         // so it has of this
	_, err = fmt.Fprintf(text, haproxyConfig, to) // a pipe holds as much
	if err = errors.Join(err, text.Close()); err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", haproxyLeash, "sh", "haproxy", "-db", "-f", "/dev/fd/4")
	cmd.ExtraFiles = []*os.File{inherited, config}
	lines := make(chan string, 1)
	h := &haproxyProcess{address: ln.Addr().String()}
	err = h.start("HAProxy", cmd, func(line []byte) {
		select {
		case lines <- string(line):
		default: // only the first has the process id
		}
	}, h.keepLine)
	if err != nil {
		return nil, err
	}
	select {
	case line := <-lines:
		h.pid, err = strconv.Atoi(line)
	case <-time.After(haproxyTimeout):
		err = errors.New("it names no process id")
	}
	if err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}
