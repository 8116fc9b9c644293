// SPDX-License-Identifier: Apache-2.0

// Command overdue makes the expiry of Azure Service Bus messages eager. It dead-letters a message
// that was not received by its deadline, and sends an alert, although no consumer is connected.
//
// Each command has a file of its own: it parses flags, calls one function of a package below, and
// prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/lifecycle"
	"overdue/internal/version"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2 // bad usage or configuration
)

func main() {
	err := run(lifecycle.UntilSignal(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	os.Exit(exitCode(err, os.Stderr))
}

// run is the whole program. It returns when the command is done or when ctx has ended
// and everything has been stopped.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	// Ids and names come from outside, and may be commands of a terminal.
	p := &program{getenv: getenv, stdout: escape.NewWriter(stdout), stderr: escape.NewWriter(stderr)}
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	// Cobra finds errors in the arguments before any command has run.
	if err != nil && !p.running {
		return &config.Error{Err: err}
	}
	return err
}

// exitCode writes the error to stderr, one line for each mistake, and returns what to exit with.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "overdue: %s\n", escape.Text(line))
	}
	if usage := (*config.Error)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// program is what the commands share.
type program struct {
	getenv         func(string) string
	stdout, stderr io.Writer // of visible; see raw
	running        bool      // a command has begun
}

// rootCommand is the tree of commands. Errors and usage are printed by exitCode alone, so
// that a mistake is one sentence and not a page of help.
func (p *program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "overdue",
		Short: "Eager expiry for Azure Service Bus",
		Long: "Overdue dead-letters Service Bus messages at their deadline, even while no consumer is\n" +
			"connected, and sends an alert. Try `overdue demo` first: it needs no Azure.",
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { p.running = true },
	}
	root.SetFlagErrorFunc(wrongFlag)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"start", "Start here:", []*cobra.Command{p.demoCommand(), p.configCommand(), p.doctorCommand()}},
		{"run", "Run:", []*cobra.Command{p.roleCommand(config.RoleRun), p.roleCommand(config.RoleProxy), p.roleCommand(config.RoleMonitor),
			p.brokerCommand(), p.injectCommand(), p.waitCommand("wait", false)}},
		{"operate", "Operate:", []*cobra.Command{p.deadlinesCommand(), p.historyCommand(""), p.explainCommand(), p.muteCommand(), p.dlqCommand(), p.sendCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	addHidden(root, p.roleCommand(config.RoleEmulator), p.benchCommand(), versionCommand())
	addHidden(root, p.planCommand(), p.verifyCommand(), p.waitCommand("healthcheck", true)) // by the names that they had
	root.Version = version.String()
	root.SetVersionTemplate(version.Line() + "\n")
	root.SetHelpCommandGroupID("start")
	refuseUnknownTopics(root)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultCompletionCmd()
	root.SetGlobalNormalizationFunc(nameFlag)
	instruct(root)
	wrapHelp(root)
	return root
}

// addHidden adds commands that help does not list.
func addHidden(parent *cobra.Command, commands ...*cobra.Command) {
	for _, c := range commands {
		c.Hidden = true
	}
	parent.AddCommand(commands...)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Line())
			return err
		},
	}
}
