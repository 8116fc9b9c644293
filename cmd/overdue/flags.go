// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// configuredByAll is configured with the flags of all roles. Help leaves them to the roles.
func (p *program) configuredByAll(cmd *cobra.Command, check func(args []string) error,
	run func(ctx context.Context, c *config.Config, args []string) error) *cobra.Command {
	p.configured(cmd, func(string) bool { return true }, check, run)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ofSetting := f.Value.(*flagValue); ofSetting {
			f.Hidden = true
		}
	})
	return cmd
}

func nothingToCheck([]string) error { return nil }

// configFlags gives a command --config and those flags of the table that it wants.
// The result loads the configuration once the flags have been parsed. presets may be nil.
func (p *program) configFlags(cmd *cobra.Command, wants func(path string) bool, presets func(getenv func(string) string) []config.Preset) func() (*config.Config, error) {
	file := cmd.Flags().String("config", "", "configuration file, YAML; - is standard input [OVERDUE_CONFIG]")
	cmd.Annotations = map[string]string{variablesNote: "A flag of a setting has a variable as well: OVERDUE_LISTEN_ADMIN for\n" +
		"--listen-admin. `overdue config example` prints all settings."}
	for _, s := range config.Settings {
		if !s.Flag || !wants(s.Path) {
			continue
		}
		name := s.FlagName()
		cmd.Flags().Var(&flagValue{setting: s}, name, flagHelp(s))
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
		cmd.Flags().Visit(func(f *pflag.Flag) { // those that were given
			if v, ok := f.Value.(*flagValue); ok {
				flags[v.setting.Path] = v.text
			}
		})
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
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		reason := invalid.Unwrap()
		if number := (*strconv.NumError)(nil); errors.As(reason, &number) {
			kind := map[string]string{"ParseBool": "true or false", "ParseInt": "a whole number"}[number.Func]
			reason = fmt.Errorf("%q is not %s", config.Clip(number.Num), cmp.Or(kind, "a number"))
		}
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, reason)
	}
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

// completes has shells complete the values of a flag.
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
}

// String, Set and Type are what a flag of pflag needs.
func (v *flagValue) String() string { return v.text }
func (v *flagValue) Set(text string) error {
	v.text = text
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

// A checkedFlag is a flag whose value is read and checked with the command line.
type checkedFlag[T any] struct {
	value *T
	kind  string // in help
	parse func(text string) (T, error)
	text  string // as it is written
}

// String, Set and Type are what a flag of pflag needs.
func (c *checkedFlag[T]) String() string { return c.text }
func (c *checkedFlag[T]) Set(text string) error {
	value, err := c.parse(text)
	if err == nil {
		*c.value, c.text = value, text
	}
	return err
}
func (c *checkedFlag[T]) Type() string { return c.kind }

// checkedVar defines such a flag. With the default "" the value stays as it is.
func checkedVar[T any](f *pflag.FlagSet, value *T, name, byDefault, kind, usage string, parse func(text string) (T, error)) {
	c := &checkedFlag[T]{
		value: value,
		kind:  kind,
		parse: parse,
	}
	if byDefault != "" {
		if err := c.Set(byDefault); err != nil {
			panic(fmt.Sprintf("default of --%s: %v", name, err))
		}
	}
	f.Var(c, name, usage)
}

// durationVar defines a flag that reads every form of a duration that the configuration reads: 30s,
// 7d, PT30S.
func durationVar(f *pflag.FlagSet, value *time.Duration, name string, byDefault, least, most time.Duration, usage string) {
	text := ""
	if byDefault != 0 {
		text = duration.Format(byDefault)
	}
	checkedVar(f, value, name, text, "duration", usage, within(config.ParseDuration, least, most))
}

// numberVar defines a flag that reads a whole number.
func numberVar(f *pflag.FlagSet, value *int, name string, byDefault, least, most int, usage string) {
	usage = fmt.Sprintf("%s, %d to %d", usage, least, most)
	checkedVar(f, value, name, strconv.Itoa(byDefault), "int", usage, within(parseNumber, least, most))
}

// textVar defines a flag that reads a text, of at most so many characters. An empty one is a variable
// of a script that was never set: without the flag the command would do something else.
func textVar(f *pflag.FlagSet, value *string, name string, most int, usage string) {
	checkedVar(f, value, name, "", "string", usage, func(text string) (string, error) {
		switch n := utf8.RuneCountInString(text); {
		case n == 0:
			return "", errors.New("the value is empty; give one, or leave the flag out")
		case n > most:
			return "", fmt.Errorf("the value has %d characters; it must have at most %d", n, most)
		}
		return text, nil
	})
}

// anyLength bounds no text.
const anyLength = math.MaxInt

// choiceVar defines a flag that reads one of several words.
func choiceVar(cmd *cobra.Command, value *string, name, byDefault string, choices []string, usage string) {
	checkedVar(cmd.Flags(), value, name, byDefault, "choice", usage+": "+strings.Join(choices, ", "), oneOf(choices))
	completes(cmd, name, choices...)
}

// within bounds what parse reads.
func within[T cmp.Ordered](parse func(text string) (T, error), least, most T) func(text string) (T, error) {
	return func(text string) (T, error) {
		v, err := parse(text)
		if inside := least <= v && v <= most; err == nil && !inside {
			err = fmt.Errorf("%s is out of bounds; it must be between %s and %s", shown(v), shown(least), shown(most))
		}
		return v, err
	}
}

// shown is the text of a value, as a person writes it.
func shown(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return duration.Format(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// oneOf reads one of several words.
func oneOf(choices []string) func(text string) (string, error) {
	return func(text string) (string, error) {
		if !slices.Contains(choices, text) {
			return "", fmt.Errorf("%q is not one of %s", config.Clip(text), strings.Join(choices, ", "))
		}
		return text, nil
	}
}

func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", config.Clip(text))
	}
	return n, nil
}

func parseFloat(text string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", config.Clip(text))
	}
	return n, nil
}

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
