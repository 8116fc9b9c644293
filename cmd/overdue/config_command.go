// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/broker"
)

// roles are those that a configuration may be for, the one that has all first.
var roles = []role{roleRun, roleProxy, roleMonitor, roleBroker}

// configCommand looks at a configuration without running anything.
func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, show what is in force, or describe it to an editor",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.configCheckCommand(), p.configPrintCommand(), p.configSchemaCommand())
	return cmd
}

func everything(string) bool { return true }

func (p *program) configCheckCommand() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check file, environment and flags: exit code 0, or 2 and every mistake with its line",
		Long: "Reads what `overdue run` would read, files with secrets among it, and checks all that can be checked\n" +
			"without the network. `overdue doctor` checks the rest against the namespace.",
		Example: "  overdue config check --config overdue.yaml\n" +
			"  overdue config check --config overdue.yaml --role proxy",
	}
	load := p.configFlags(cmd, everything)
	cmd.Flags().StringVar(&as, "role", "run", "which command it is for: run, proxy, monitor or broker")
	completes(cmd, "role", "run", "proxy", "monitor", "broker")
	cmd.RunE = func(*cobra.Command, []string) error {
		at := slices.IndexFunc(roles, func(r role) bool { return r.name == as })
		if at < 0 {
			return &configError{fmt.Errorf("--role is %q; it must be one of run, proxy, monitor, broker", clip(as))}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if err := errors.Join(c.fit(roles[at]), c.checkParts(roles[at])); err != nil {
			return &configError{err}
		}
		for _, name := range strangeVariables(os.Environ()) {
			fmt.Fprintf(p.stderr, "overdue: %s\n", name) // what cannot be told is no mistake of the configuration
		}
		_, err = fmt.Fprintf(p.stdout, "The configuration is right for `overdue %s`; %s.\n", as, c.sources())
		return err
	}
	return cmd
}

// checkParts checks what a start would find wrong in parts that it makes: sinks, certificates, the embedded broker.
func (c *config) checkParts(r role) error {
	var errs []error
	for i := range c.Alerts {
		a := &c.Alerts[i]
		var err error
		if a.ServiceBus == nil { // it takes a client, and says nothing before it is used
			_, _, err = a.sink(nil)
		}
		if err == nil {
			_, err = alert.Only(nil, a.Entities, a.Events)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.at(sinkKey(a.key, err)), err))
		}
	}
	pair := func(key, cert, private string) {
		if cert == "" {
			return
		}
		if _, err := tls.LoadX509KeyPair(cert, private); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.at(key), err))
		}
	}
	if r.proxy {
		pair("listen.tls.certFile", c.Listen.TLS.CertFile, c.Listen.TLS.KeyFile)
	}
	if !c.embedded() {
		if ns, err := parseNamespace(c.Namespace); err == nil { // it was parsed before
			_, err = c.adminAPI(ns, nil)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	pair("broker.tls.certFile", c.Broker.TLS.CertFile, c.Broker.TLS.KeyFile)
	b, err := broker.New((&process{role: r, cfg: c, log: zap.NewNop()}).brokerConfig())
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, b.Close())...)
}

// sources says where the configuration came from.
func (c *config) sources() string {
	files, variables, flags := map[string]bool{}, 0, 0
	for _, place := range c.origin {
		switch {
		case strings.HasPrefix(place, "--"):
			flags++
		case strings.HasPrefix(place, "OVERDUE_"):
			variables++
		default:
			file, _, _ := cutLast(place, ":")
			files[file] = true
		}
	}
	var parts []string
	for file := range files {
		parts = append(parts, file)
	}
	if variables > 0 {
		parts = append(parts, fmt.Sprintf("%d from the environment", variables))
	}
	if flags > 0 {
		parts = append(parts, fmt.Sprintf("%d from flags", flags))
	}
	if len(parts) == 0 {
		return "it is all defaults"
	}
	return "it comes from " + strings.Join(parts, ", ")
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// strangeVariables are those of the environment that look like a setting, and are none: an empty result is silence in
// a cluster, where a service of the name overdue brings OVERDUE_PORT and others like it.
func strangeVariables(environ []string) (lines []string) {
	known := []string{"OVERDUE_CONFIG", "OVERDUE_SEED"}
	for _, s := range settings {
		if name := s.env(); name != "" {
			known = append(known, name)
		}
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "OVERDUE_") || slices.Contains(known, name) {
			continue
		}
		if near := nearest(name, known); near != "" && distance(name, near) <= 3 {
			lines = append(lines, fmt.Sprintf("%s is no setting, and has no effect; did you mean %s?", name, near))
		}
	}
	slices.Sort(lines)
	return lines
}
