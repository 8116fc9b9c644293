// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/broker/entityfile"
	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/copyconfig"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
)

// configCommand looks at a configuration without running anything.
func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, show what is in force, print an example",
	}
	cmd.AddCommand(p.configCheckCommand(), p.configPrintCommand(), configExampleCommand(), p.configCopyCommand())
	addHidden(cmd, configSchemaCommand()) // its output is in the repository
	return cmd
}

const flagsOfRoles = "It takes the flags of settings that run, proxy, monitor and broker take."

func (p *program) configCheckCommand() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check file, environment and flags; exit code 2 for a mistake",
		Long: "Reads what a start would read, including files with secrets, and checks all that can be checked\n" +
			"without the network, for every command that the configuration could serve: run, proxy and monitor with\n" +
			"a namespace, run and broker without. `overdue doctor` checks the rest against the namespace.\n\n" + flagsOfRoles,
		Example: "  overdue config check --config overdue.yaml\n" +
			"  overdue config check --config overdue.yaml --role proxy",
	}
	choiceVar(cmd, &as, "role", "", []string{"run", "proxy", "monitor", "broker"}, "check for this command alone")
	return p.configuredByAll(cmd, nothingToCheck, func(_ context.Context, c *config.Config, _ []string) error {
		roles := c.Roles()
		if at := slices.IndexFunc(config.Roles, func(r config.Role) bool { return r.Name == as }); at >= 0 {
			roles = config.Roles[at : at+1]
		}
		if err := checkRoles(c, roles); err != nil {
			return &config.Error{Err: err}
		}
		_, err := fmt.Fprintf(p.stdout, "The configuration is valid for %s. Sources: %s.\n", commands(roles), c.Sources.String())
		if dir := c.Broker.Directory; dir != "" && err == nil {
			_, err = fmt.Fprintf(p.stdout, "The embedded broker keeps its entities and messages in %s.\n", dir)
		}
		return err
	})
}

// configCopyCommand writes the entities of a namespace as a configuration.
func (p *program) configCopyCommand() *cobra.Command {
	var format, api string
	cmd := &cobra.Command{
		Use:   "copy [connection]",
		Short: "Write the entities and rules of a namespace as a configuration",
		Long: "Reads the queues, topics, subscriptions and rules of a namespace, and prints a configuration with which\n" +
			"`overdue broker --config overdue.yaml` has the same, for tests. It reads no messages and prints no keys. The connection is a\n" +
			"connection string, or the name of a namespace to sign in with the machine's Azure identity. Without it, the\n" +
			"namespace of the configuration is read: that keeps the key out of the process list. It needs the right to manage.\n\n" +
			"Settings that the file cannot hold are comments above their entity; with --format emulator they are listed\n" +
			"on standard error.",
		Example: "  overdue config copy contoso.servicebus.windows.net > overdue.yaml\n" +
			"  OVERDUE_NAMESPACE_FILE=key overdue config copy --format emulator > Config.json",
	}
	choiceVar(cmd, &format, "format", "yaml", []string{"yaml", "emulator"}, "a configuration, or the official emulator's Config.json")
	textVar(cmd.Flags(), &api, "admin", anyLength, "address of the administration API, if it is elsewhere than namespaceAdmin says")
	return p.configured(cmd, settings("namespace"), nothingToCheck, func(ctx context.Context, c *config.Config, args []string) error {
		if len(args) > 0 {
			c = c.WithNamespace(args[0])
		}
		if c.Embedded() {
			return &config.Error{Err: errors.New("there is no namespace to copy: name one as the argument, or set namespaceFile or namespace")}
		}
		if api != "" {
			c.AdminURL = api
		}
		client, err := operator.Open(c)
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		return p.copyEntities(ctx, client, format)
	})
}

// copyEntities prints the entities of the namespace that a client is connected to.
func (p *program) copyEntities(ctx context.Context, client *operator.Client, format string) error {
	host := client.Namespace.Host
	setup, remarks, err := copyconfig.Read(ctx, client.Admin)
	switch {
	case errors.Is(err, entities.ErrNoRight):
		return fmt.Errorf("the entities of %s cannot be read: %s; it takes a key or an identity with the Manage right", host, failure.Reason(err))
	case err != nil:
		return fmt.Errorf("the entities of %s cannot be read: %s", host, failure.Reason(cmp.Or(failure.Unreachable(err), err)))
	}
	if format == "yaml" {
		if _, err := fmt.Fprintf(p.stdout, "# Entities and rules of %s, without messages and keys.\n", host); err != nil {
			return err
		}
		return entityfile.YAML(p.stdout, setup, remarks)
	}
	left, err := entityfile.Emulator(p.stdout, setup, remarks)
	for _, text := range left {
		fmt.Fprintln(p.stderr, text)
	}
	return err
}

// checkRoles checks a configuration for each of the roles. A mistake that concerns only some of them names those.
func checkRoles(c *config.Config, roles []config.Role) error {
	var mistakes []string // each once, in the order of being found
	of := map[string][]config.Role{}
	for _, r := range roles {
		err := errors.Join(c.CheckRole(r), app.Check(c, r))
		if err == nil {
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if of[line] == nil {
				mistakes = append(mistakes, line)
			}
			of[line] = append(of[line], r)
		}
	}
	var errs []error
	for _, m := range mistakes {
		if concerned := of[m]; len(concerned) < len(roles) {
			m += fmt.Sprintf(" (this concerns %s)", commands(concerned))
		}
		errs = append(errs, errors.New(m))
	}
	return errors.Join(errs...)
}

// commands names the commands of roles: `overdue run`, `overdue proxy` and `overdue monitor`.
func commands(roles []config.Role) string {
	var b strings.Builder
	for i, r := range roles {
		switch {
		case i == 0:
		case i == len(roles)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`overdue %s`", r.Name)
	}
	return b.String()
}

func (p *program) configPrintCommand() *cobra.Command {
	var asJSON, given bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Show every setting in force and its origin, without secrets",
		Long: "Prints what file, environment and flags come to, as a configuration file with the origin of each value behind\n" +
			"it. Secrets are left out, except for their hosts, so you can attach the result to a report. It can be loaded again\n" +
			"only after they have been put back. GET /configz on the admin port shows the same of a running process.\n\n" + flagsOfRoles,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: settings and origin, as /configz does")
	cmd.Flags().BoolVar(&given, "given", false, "leave out what nobody has set")
	check := func([]string) error {
		if asJSON && given {
			return errors.New("--given is for the YAML form; the JSON form names the origin of what was set")
		}
		return nil
	}
	return p.configuredByAll(cmd, check, func(_ context.Context, c *config.Config, _ []string) error {
		return p.print(asJSON, c.Sources.Redacted(), func(w io.Writer, _ int) error {
			text, err := c.Sources.YAML(given)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		})
	})
}

func configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration file, for editors",
		Long: "Prints the JSON schema (2020-12) of the configuration file. Editors with a YAML language server take it from\n" +
			"the first line of the file:\n\n" +
			"  # yaml-language-server: $schema=overdue.schema.json",
		Example: "  overdue config schema > overdue.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return escape.WriteJSON(cmd.OutOrStdout(), config.Schema())
		},
	}
}

func configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with every key and its description",
		Long: "Prints a configuration file with every key, its description, and its default or an example. Keep what you\n" +
			"need: a key that you leave out has its default.",
		Example: "  overdue config example > overdue.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), config.Example())
			return err
		},
	}
}
