// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// helpWidth is how many columns the lines of help have at most.
const helpWidth = 80

// variablesNote is the annotation of a command with what its help says last.
const variablesNote = "variables"

// wrapHelp breaks the texts and the flags of c and of every command below it into lines. Examples
// stay as they are: people copy them.
func wrapHelp(c *cobra.Command) {
	paragraphs := strings.Split(version.Doc(c.Long), "\n\n")
	for i, text := range paragraphs {
		if !strings.HasPrefix(text, " ") && !strings.Contains(text, "\n ") { // otherwise it is a list or code
			paragraphs[i] = terminal.Wrap(strings.ReplaceAll(text, "\n", " "), helpWidth, 0)
		}
	}
	c.Long = strings.Join(paragraphs, "\n\n")
	if !c.HasParent() { // its template is that of all commands
		wrapped := strings.ReplaceAll(c.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth))
		c.SetUsageTemplate(wrapped + `{{with index .Annotations "` + variablesNote + "\"}}\n{{.}}\n{{end}}")
	}
	for _, sub := range c.Commands() {
		wrapHelp(sub)
	}
}

// instruct makes every command below c take the arguments that its Use line names, and refuse
// others. Cobra's own errors leave out what to do next, and for an unknown command it shows help as
// if nothing were wrong.
func instruct(c *cobra.Command) {
	if c.HasSubCommands() && len(argumentsOf(c)) == 0 {
		c.Args = noSuchCommand
	} else {
		c.Args = asItsUseLineSays
	}
	if !c.Runnable() { // cobra does not check the arguments then
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range c.Commands() {
		instruct(sub)
	}
}

// argumentsOf are the words of the Use line behind the command: queue, [queue] or [queue…].
func argumentsOf(c *cobra.Command) []string {
	return regexp.MustCompile(`\[[^\]]*\]|\S+`).FindAllString(c.Use, -1)[1:]
}

func asItsUseLineSays(c *cobra.Command, args []string) error {
	wanted := argumentsOf(c)
	least, most := 0, len(wanted)
	for _, w := range wanted {
		if !strings.HasPrefix(w, "[") {
			least++
		}
		if strings.HasSuffix(w, "…]") {
			most = len(args)
		}
	}
	switch empty := slices.Index(args, ""); {
	case least <= len(args) && len(args) <= most && empty < 0:
		return nil
	case least <= len(args) && len(args) <= most:
		return fmt.Errorf("argument %d of %s is empty; write %s %s", empty+1, c.CommandPath(), c.CommandPath(), strings.Join(wanted, " "))
	case len(wanted) == 0:
		return fmt.Errorf("%s takes no arguments, and %q is one; see %s --help", c.CommandPath(), config.Clip(args[0]), c.CommandPath())
	case len(args) < least:
		return fmt.Errorf("%s lacks %s; write %s %s", c.CommandPath(), strings.Join(wanted[len(args):least], " and "), c.CommandPath(), strings.Join(wanted, " "))
	}
	return fmt.Errorf("%s has no use for %q; write %s %s", c.CommandPath(), config.Clip(args[most]), c.CommandPath(), strings.Join(wanted, " "))
}

// noSuchCommand is for a command that only has others below it.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	paths := map[string]string{} // of the commands below c, by name
	var list func(at *cobra.Command)
	list = func(at *cobra.Command) {
		for _, sub := range at.Commands() {
			if !sub.IsAvailableCommand() {
				continue
			}
			if paths[sub.Name()] == "" {
				names = append(names, sub.Name())
				paths[sub.Name()] = strings.TrimPrefix(sub.CommandPath(), c.CommandPath()+" ")
			}
			list(sub)
		}
	}
	list(c)
	meant := ""
	if near := config.Nearest(args[0], names); near != "" {
		meant = "did you mean " + paths[near] + "? "
	}
	return fmt.Errorf("unknown command %q for %q; %ssee %s --help", config.Clip(args[0]), c.CommandPath(), meant, c.CommandPath())
}

// refuseUnknownTopics makes cobra's help command refuse unknown commands.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Use, c.Long, c.Run = "help [command…]", "", nil
		c.RunE = func(c *cobra.Command, args []string) error {
			at, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return &config.Error{Err: noSuchCommand(at, rest)}
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		}
	}
}
