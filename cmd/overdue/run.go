// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// A role is which rooms a process has.
type role struct {
	name        string
	short, long string
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
		short: "Run the embedded broker alone",
		long:  "Runs the embedded broker alone, for tests and local development. Nothing is monitored."}
)

// wants reports whether a setting has a meaning for the role.
func (r *role) wants(path string) bool {
	switch {
	case strings.HasPrefix(path, "broker."):
		return r.broker
	case path == "listen.http" || strings.HasPrefix(path, "proxy."):
		return r.proxy
	case path == "namespace" || path == "monitorQueue":
		return r.proxy || r.monitor
	}
	return true
}

// roleCommand is the command of one role, with the flags that mean something to it.
func (p *program) roleCommand(r role) *cobra.Command {
	cmd := &cobra.Command{Use: r.name, Short: r.short, Long: r.long, Args: cobra.NoArgs}
	load := p.configFlags(cmd, r.wants)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if err := c.fit(r); err != nil {
			return &configError{err}
		}
		return p.serve(cmd.Context(), r, c)
	}
	return cmd
}

// fit checks the namespace against the role.
func (c *config) fit(r role) error {
	switch {
	case !r.broker && c.embedded():
		return fmt.Errorf("%s needs a namespace; set --namespace or %s, or use `overdue run`, which brings a broker of its own",
			r.name, byPath["namespace"].env())
	case !r.proxy && !r.monitor && !c.embedded():
		return fmt.Errorf("%s is given, but `overdue broker` is a namespace itself; remove it, or use `overdue run`", c.at("namespace"))
	}
	return nil
}

// serve runs a role until ctx ends, somebody asks it to quit or a room fails.
func (p *program) serve(ctx context.Context, r role, c *config) error {
	log, level, err := newLog(p.stderr, c.Log)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Sync() }() // of a terminal or a pipe it fails for no reason
	proc, err := start(r, c, log, level)
	if err != nil {
		return err
	}
	proc.banner(p.stdout)
	log.Info("serving", zap.String("role", r.name), zap.String("version", version()), zap.String("admin", proc.adminAddr))
	err = proc.wait(ctx)
	log.Info("stopped", zap.Error(err))
	return err
}

// wait blocks until the process is to end, and ends it.
func (p *process) wait(ctx context.Context) error {
	var failure error
	select {
	case <-ctx.Done():
		p.log.Info("stopping", zap.String("reason", "signal"))
	case <-p.admin.quit:
		p.log.Info("stopping", zap.String("reason", "quitquitquit"))
	case failure = <-p.life.failed:
		p.log.Error("room failed", zap.Error(failure))
	}
	return errors.Join(failure, p.stop())
}
