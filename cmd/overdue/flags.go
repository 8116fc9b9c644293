// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/servicebus/duration"
	"overdue/internal/terminal"
)

// configured makes a command run with its configuration. It gets --config and the flags of the
// settings that it wants. check looks at its arguments and at its other flags; what it finds is bad
// usage.
func (p *program) configured(cmd *cobra.Command, wants func(path string) bool, check func(args []string) error,
	run func(ctx context.Context, c *config.Config, args []string) error) *cobra.Command {
	load := p.configFlags(cmd, wants, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(args); err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
	return cmd
}

// settings wants the settings with these paths.
func settings(paths ...string) func(path string) bool {
	return func(path string) bool { return slices.Contains(paths, path) }
}

func everySetting(string) bool { return true }

// configFlags gives a command --config and those flags of the table that it wants.
// The result loads the configuration once the flags have been parsed. presets may be nil.
func (p *program) configFlags(cmd *cobra.Command, wants func(path string) bool, presets func(getenv func(string) string) []config.Preset) func() (*config.Config, error) {
	file := cmd.Flags().String("config", "", "configuration file, YAML; - is standard input [OVERDUE_CONFIG]")
	cmd.Annotations = map[string]string{variablesNote: "A flag of a setting has a variable as well: OVERDUE_LISTEN_ADMIN for\n" +
		"--listen-admin. `overdue config example` prints all settings."}
	values := map[string]*flagValue{}
	for _, s := range config.Settings {
		if !s.Flag || !wants(s.Path) {
			continue
		}
		v := &flagValue{setting: s}
		values[s.Path] = v
		name := s.FlagName()
		cmd.Flags().Var(v, name, flagHelp(s))
		cmd.Flags().Lookup(name).Hidden = !s.Common()
		switch s.Kind {
		case config.KindBool:
			cmd.Flags().Lookup(name).NoOptDefVal = "true" // --flag alone means yes
		case config.KindChoice:
			completes(cmd, name, s.Choices...)
		}
	}
	if err := cmd.MarkFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // the flag was defined above
	}
	return func() (*config.Config, error) {
		flags := map[string]string{}
		for path, v := range values {
			if v.given {
				flags[path] = v.text
			}
		}
		if *file == "" {
			*file = p.getenv("OVERDUE_CONFIG")
		}
		var defaults []config.Preset
		if presets != nil {
			defaults = presets(p.getenv)
		}
		c, err := config.Load(*file, p.getenv, flags, defaults...)
		if err := errors.Join(config.CheckVariables(os.Environ()), err); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// formerFlags are the names of flags before they had those of their settings.
var formerFlags = map[string]string{
	"emulator-config": "broker-emulator-config",
	"isolate":         "broker-isolate",
	"tls":             "broker-tls-enabled",
}

// nameFlag makes former names of flags go on working.
func nameFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if now := formerFlags[name]; now != "" {
		name = now
	}
	return pflag.NormalizedName(name)
}

// wrongFlag says what to do about an error in the flags of a command.
func wrongFlag(cmd *cobra.Command, err error) error {
	meant := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		names := slices.Collect(maps.Keys(formerFlags))
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		near := config.Nearest(unknown.GetSpecifiedName(), names)
		if known := cmd.Flags().Lookup(near); known != nil {
			meant = "did you mean --" + known.Name + "? "
		}
	}
	return fmt.Errorf("%w; %ssee %s --help", err, meant, cmd.CommandPath())
}

// completes tells shells which values a flag takes.
func completes(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is there, and has no completion yet
	}
}

// flagValue keeps what was typed. It is read with the other sources, so that a mistake in
// a flag and one in a file make the same sentence.
type flagValue struct {
	setting *config.Setting
	text    string
	given   bool
}

// String, Set and Type are what a flag of pflag needs.
func (v *flagValue) String() string { return v.text }
func (v *flagValue) Set(text string) error {
	v.text, v.given = text, true
	return nil
}
func (v *flagValue) Type() string {
	return strings.ReplaceAll(v.setting.Kind.String(), " ", "-")
}

// flagHelp is the first sentence of the help, with the default.
func flagHelp(s *config.Setting) string {
	help, _, _ := strings.Cut(s.Help, ": ")
	help, _, _ = strings.Cut(help, ". ")
	help = strings.TrimSuffix(strings.ReplaceAll(help, "`", ""), ".")
	if s.Kind == config.KindChoice {
		help += ": " + strings.Join(s.Choices, ", ")
	}
	if standard := s.Default + s.DefaultNote; standard != "" && standard != "false" {
		help += " (default " + standard + ")"
	}
	return help
}

// durationFlag is a flag that reads every form of a duration that the configuration reads: 30s,
// 7d, PT30S.
type durationFlag struct{ value *time.Duration }

// durationVar defines such a flag.
func durationVar(f *pflag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	f.Var(durationFlag{value}, name, usage)
}

func (d durationFlag) Set(text string) error {
	parsed, err := duration.Parse(text)
	if err != nil {
		return err
	}
	*d.value = parsed
	return nil
}

func (d durationFlag) String() string {
	if d.value == nil {
		return "" // pflag asks the zero value for its text
	}
	return d.value.String()
}

func (durationFlag) Type() string { return "duration" }

// endpointFlag defines the flag that says which endpoint a command of operators connects through.
func endpointFlag(cmd *cobra.Command, endpoint *string) {
	cmd.Flags().StringVar(endpoint, "endpoint", "",
		"host:port of the AMQP endpoint of an Overdue that runs; by default one of its own, or without a namespace that at listen.amqp")
}

// jsonFlag defines --json.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print the result as JSON")
}

// print writes what a command has found as JSON, or as text.
func (p *program) print(asJSON bool, found any, writeText func(w io.Writer, width int) error) error {
	if asJSON {
		return escape.WriteJSON(p.stdout, found)
	}
	return writeText(p.stdout, terminal.Width(p.stdout))
}
