// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
)

// forward is the simplest process between a client and a broker: it only copies bytes, connection
// by connection. Its cost is the system's price of one more hop; the endpoint's other costs are its
// own. It prints its address on standard output.
func forward(to string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := join(client, to); err != nil {
				fmt.Fprintln(os.Stderr, "forward:", err)
			}
		}()
	}
}

// join copies both ways until either side ends.
func join(client net.Conn, to string) error {
	defer client.Close()
	broker, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer broker.Close()
	var wg sync.WaitGroup
	pass := func(dst, src net.Conn) {
		// The types hide the TCP connections from io.Copy, so that bytes are copied through this process,
		// as in every relay that reads them.
		_, _ = io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src}) // the error does not matter
		_ = dst.Close()
	}
	wg.Go(func() { pass(broker, client) })
	wg.Go(func() { pass(client, broker) })
	wg.Wait()
	return nil
}

// startForwarder starts this program once more, as a forwarder to an address.
func startForwarder(ctx context.Context, to string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, "-forward", to)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(out, &p.endpoint); err != nil {
		return nil, errors.Join(fmt.Errorf("the forwarder did not say where it listens: %w", err), p.kill())
	}
	return p, nil
}

// kill ends a process that has nothing to finish.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	return err
}
