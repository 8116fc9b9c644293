// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// start measures the time from the start of `overdue broker` to its answer to a client's first
// bytes.
func (b *bench) start(ctx context.Context) error {
	if b.binary == "" || b.skips("start to ready") {
		return nil
	}
	var times []time.Duration
	for range 11 {
		took, err := b.startOnce(ctx)
		if err != nil {
			return fmt.Errorf("start to ready: %w", err)
		}
		times = append(times, took)
	}
	slices.Sort(times)
	fmt.Printf("\n%-58s %10s\n", "start to ready: median and worst of 11",
		fmt.Sprintf("%v, %v", times[5].Round(time.Millisecond), times[10].Round(time.Millisecond)))
	return nil
}

func (b *bench) startOnce(ctx context.Context) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, "broker", "--broker-listen", "127.0.0.1:0", "--log-level", "error")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which Wait reports
		err = errors.Join(err, cmd.Wait())
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Endpoint=sb://"); ok {
			address, _, _ := strings.Cut(rest, ";")
			err = greet(strings.TrimSuffix(address, "/"))
			return time.Since(began), err
		}
	}
	return 0, errors.New("it did not say where it listens")
}

// greet sends the header of AMQP and waits for the same.
func greet(address string) error {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer nc.Close()
	header := []byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	if _, err := nc.Write(header); err != nil {
		return err
	}
	answer := make([]byte, len(header))
	if n, err := nc.Read(answer); err != nil || !slices.Equal(answer[:n], header) {
		return errors.Join(fmt.Errorf("%s answered %q", address, answer[:n]), err)
	}
	return nil
}
