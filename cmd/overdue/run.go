// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// A role is which rooms a process has.
type role struct {
	name        string
	short, long string
	example     string
	proxy       bool
	monitor     bool
	broker      bool // the embedded broker when no namespace is configured
}

var (
	roleRun = role{name: "run", proxy: true, monitor: true, broker: true,
		short: "Run proxy and monitor, and without a namespace the embedded broker too",
		long: "Runs proxy and monitor in one process. With no namespace configured it also runs the\n" +
			"embedded broker, and without --config that broker makes queues on demand and every\n" +
			"queue is monitored."}
	roleProxy = role{name: "proxy", proxy: true,
		short: "Run the proxy alone: the sidecar beside an app",
		long:  "Runs the proxy alone, against a namespace. Somewhere a monitor has to run for that namespace."}
	roleMonitor = role{name: "monitor", monitor: true,
		short: "Run the monitor alone: once per namespace, in any number of replicas",
		long:  "Runs the monitor alone, against a namespace."}
	roleBroker = role{name: "broker", broker: true,
		short: "Run the embedded broker alone: a Service Bus namespace on this machine",
		long: "Runs the embedded broker alone: a Service Bus namespace in memory, for tests and local\n" +
			"development. Nothing is monitored. When it serves, it prints a line that begins with\n" +
			"Endpoint= and is the connection string. docs/broker/README.md has more.",
		example: "  overdue broker                                        # queues are made when they are named\n" +
			"  overdue broker --broker-listen 127.0.0.1:0 --isolate  # for tests: any free port, a namespace for each key name\n" +
			"  overdue broker --emulator-config Config.json --broker-listen 127.0.0.1:5672 --broker-also-listen 127.0.0.1:5300"}
)

// wants reports whether a setting has a meaning for the role.
func (r *role) wants(path string) bool {
	switch {
	case strings.HasPrefix(path, "broker."):
		return r.broker
	case path == "onMonitorDown" || strings.HasPrefix(path, "journal.") || path == "listen.amqp" || path == "listen.http" || strings.HasSuffix(path, "SigtermDelay") || strings.HasPrefix(path, "proxy."):
		return r.proxy
	case path == "namespace":
		return r.proxy || r.monitor
	}
	return true
}

// roleCommand is the command of one role, with the flags that mean something to it.
func (p *program) roleCommand(r role) *cobra.Command {
	cmd := &cobra.Command{Use: r.name, Short: r.short, Long: r.long, Example: r.example}
	load := p.configFlags(cmd, r.wants)
	withStdin := cmd.Flags().Bool("stop-with-stdin", false,
		"stop when standard input is closed, as it is when whoever started this process has ended, however")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		fitting := func() (*config, error) {
			c, err := load()
			if err != nil {
				return nil, err
			}
			if err := c.fit(r); err != nil {
				return nil, &configError{err}
			}
			return c, nil
		}
		c, err := fitting()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		if *withStdin {
			ctx = untilClosed(ctx, cmd.InOrStdin())
		}
		return p.serve(ctx, r, c, fitting)
	}
	return cmd
}

// untilClosed is a context that ends with r, too. Its goroutine may outlive ctx: a read
// of standard input ends when the process does.
func untilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // an error is an end, too
		cancel()
	}()
	return ctx
}

// fit checks what depends on the role: the namespace, and what it listens on. The files of a door
// need not be there where there is none.
func (c *config) fit(r role) error {
	switch {
	case !r.broker && c.embedded():
		return fmt.Errorf("%s needs a namespace; set --namespace or %s, or use `overdue run`, which brings a broker of its own",
			r.name, byPath["namespace"].env())
	case !r.proxy && !r.monitor && !c.embedded():
		return fmt.Errorf("%s is given, but `overdue broker` is a namespace itself; remove it, or use `overdue run`", c.at("namespace"))
	case r.proxy && c.OnMonitorDown == passOn && c.Journal.Directory == "":
		return fmt.Errorf("%s is %s, which needs journal.directory: a directory on a disk, for the companions that the monitor queue does not take", c.at("onMonitorDown"), passOn)
	}
	if r.proxy || r.monitor {
		if err := c.checkOwnQueue(); err != nil {
			return err
		}
	}
	if r.proxy {
		if err := errors.Join(c.checkListen(), c.readDoorKeys()); err != nil {
			return err
		}
	}
	return c.checkAddresses(r)
}

// serve runs a role until ctx ends, somebody asks it to quit or a room fails. load reads the configuration anew.
func (p *program) serve(ctx context.Context, r role, c *config, load func() (*config, error)) error {
	log, level, err := newLog(p.stderr, c.Log)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Sync() }() // of a terminal or a pipe it fails for no reason
	proc, err := start(r, c, log, level)
	if err != nil {
		return err
	}
	reloads := newReloader(proc, load)
	if c.reloads() {
		// Without a file SIGHUP ends the process, as it does when a terminal is closed.
		proc.life.background("configuration", reloads.run)
	}
	proc.banner(p.stdout)
	log.Info("serving", zap.String("role", r.name), zap.String("version", version()), zap.String("admin", proc.adminAddr))
	err = proc.wait(ctx)
	log.Info("stopped", zap.Error(err))
	return err
}

// wait blocks until the process is to end, and ends it. SIGTERM leaves apps the time that they may
// have; whatever else ends it does not.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errTerminated) {
			p.log.Info("stopping", zap.String("reason", errTerminated.Error()))
			done := p.hurryOn()
			err := p.stopPatiently()
			return errors.Join(done(), err)
		}
		p.log.Info("stopping", zap.String("reason", "signal, or the end of standard input"))
	case <-p.admin.quit:
		p.log.Info("stopping", zap.String("reason", "quitquitquit"))
	case failure := <-p.life.failed:
		p.log.Error("room failed", zap.Error(failure))
		return errors.Join(failure, p.stop())
	}
	return p.stop()
}
