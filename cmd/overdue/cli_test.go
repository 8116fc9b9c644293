// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

var manDir = flag.String("man", "", "a folder to write the man pages to")

// tree is the commands as they are, with nothing of the caller's environment.
func tree() *cobra.Command {
	p := &program{getenv: func(string) string { return "" }}
	root := p.rootCommand()
	return root
}

const cliHead = `# Commands

<!-- Generated from the commands in cmd/overdue by make docs. A test fails when it is stale. -->

Exit code 0 is success, 1 a failure, 2 bad usage or configuration. Flags stand after their command. A flag of a setting has the name of its key, and a
variable does so as well: ` + "`--listen-admin` and `OVERDUE_LISTEN_ADMIN` are `listen.admin`" + `. [configuration.md](configuration.md) has the settings; flags of those in
[configuration-rare.md](configuration-rare.md) are not listed here, but work. ` + "`overdue completion bash`" + ` (zsh, fish, powershell) prints a script that completes commands, flags and their values; ` + "`make man`" + ` writes man pages.
`

const cliTail = `
## Not listed by help

Each of these has help of its own, as ` + "`overdue bench --help`" + `.

| command | |
|---|---|
`

// notListed are the hidden commands, and those that are the same by another name.
func notListed() string {
	var b strings.Builder
	root := tree()
	now := map[string]string{} // paths of listed commands, by their texts
	walkListed(root, func(c *cobra.Command) { now[c.Short] = c.CommandPath() })
	walk(root, func(c *cobra.Command) {
		if !c.Hidden || c.Parent().Hidden {
			return
		}
		text := cell(c.Short)
		if path := now[c.Short]; path != "" {
			text = "A former name, which goes on working: see `" + path + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.CommandPath(), text)
	})
	return b.String()
}

// commandLine is docs/reference/cli.md: a section for each command, in the order of the help.
func commandLine() string {
	var b strings.Builder
	b.WriteString(cliHead)
	root := tree()
	b.WriteString("\n| command | |\n|---|---|\n")
	const shared = 3 // commands with the same flag, from which on it is described once for all
	commandsWith := map[string]int{}
	walkListed(root, func(c *cobra.Command) {
		visitFlags(c, func(f *pflag.Flag) { commandsWith[flagRow(f)]++ })
	})
	walkListed(root, func(c *cobra.Command) {
		if c != root {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
		}
	})
	walkListed(root, func(c *cobra.Command) {
		if c == root {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(&b, "%s\n", strings.TrimSpace(text))
		fmt.Fprintf(&b, "\n```\n%s\n```\n", c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", dedent(c.Example))
		}
		var own, others []string
		visitFlags(c, func(f *pflag.Flag) {
			if row := flagRow(f); commandsWith[row] < shared {
				own = append(own, row)
			} else {
				others = append(others, "`--"+f.Name+"`")
			}
		})
		b.WriteString(flagTable(own))
		if len(others) > 0 {
			fmt.Fprintf(&b, "\n[Shared flags](#shared-flags): %s\n", strings.Join(others, " "))
		}
	})
	b.WriteString("\n## Shared flags\n")
	maps.DeleteFunc(commandsWith, func(_ string, n int) bool { return n < shared })
	b.WriteString(flagTable(slices.Sorted(maps.Keys(commandsWith))))
	b.WriteString(cliTail + notListed())
	return b.String()
}

// visitFlags visits the flags that the page shows of a command.
func visitFlags(c *cobra.Command, visit func(*pflag.Flag)) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if c.HasParent() && !f.Hidden && f.Name != "help" {
			visit(f)
		}
	})
}

func flagRow(f *pflag.Flag) string {
	return fmt.Sprintf("| `--%s` | %s | %s |\n", f.Name, cell(f.Usage), shownDefault(f))
}

func flagTable(rows []string) string {
	if len(rows) == 0 {
		return ""
	}
	return "\n| flag | | default |\n|---|---|---|\n" + strings.Join(rows, "")
}

func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "\n", " ")
}

// shownDefault is the default of a flag, where it says one.
func shownDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]":
		return ""
	}
	return "`" + f.DefValue + "`"
}

// dedent takes the two blanks away that an example has before each line.
func dedent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// walk visits the commands, parents first, hidden ones too.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.Name() != "help" {
			walk(sub, visit)
		}
	}
}

// walkListed visits those that help lists.
func walkListed(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			walkListed(sub, visit)
		}
	}
}

// A new command is one more to choose from: see whether one of these can do its work.
func TestFewCommandsAreListed(t *testing.T) {
	const most = 25
	var listed []string
	walkListed(tree(), func(c *cobra.Command) {
		onlyHasOthers := c.HasAvailableSubCommands() && !c.HasAvailableLocalFlags()
		if !onlyHasOthers {
			listed = append(listed, c.CommandPath())
		}
	})
	if len(listed) > most {
		t.Errorf("help lists %d commands, want %d at most: %s", len(listed), most, strings.Join(listed, ", "))
	}
}

// Every command says what it is for, takes its arguments on purpose and has no example that it would refuse.
func TestCommandsExplainThemselves(t *testing.T) {
	root, seen := tree(), map[string]bool{}
	walk(root, func(c *cobra.Command) {
		if seen[c.CommandPath()] {
			t.Errorf("%s is there twice", c.CommandPath())
		}
		seen[c.CommandPath()] = true
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short text is %q; it has to be one without a full stop", c.CommandPath(), c.Short)
		}
		for line := range strings.Lines(c.Example) {
			example, _, _ := strings.Cut(strings.TrimSpace(line), " #")
			words := strings.Fields(example)
			if len(words) == 0 || words[0] != "overdue" {
				continue
			}
			found, rest, err := root.Find(words[1:])
			if err != nil || found.Short != c.Short { // a hidden one has the examples of the one that it is called now
				t.Errorf("%s: the example %q is of another command: %v", c.CommandPath(), example, err)
				continue
			}
			for _, w := range rest {
				if name, ok := strings.CutPrefix(w, "--"); ok {
					name, _, _ = strings.Cut(name, "=")
					if found.Flags().Lookup(name) == nil {
						t.Errorf("%s: the example %q has a flag that there is not: --%s", c.CommandPath(), example, name)
					}
				}
			}
		}
	})
}

func TestManPagesAreMade(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root := tree()
	root.DisableAutoGenTag = true
	released := time.Unix(0, 0).UTC() // pages of one commit are the same whenever they are made
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "OVERDUE", Section: "1", Source: "Overdue", Manual: "Overdue", Date: &released}, dir); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "overdue*.1"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	walkListed(root, func(*cobra.Command) { count++ })
	if len(pages) < count {
		t.Errorf("%d man pages for %d commands", len(pages), count)
	}
	page, err := os.ReadFile(filepath.Join(dir, "overdue-doctor.1"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "send-test") {
		t.Errorf("the man page of doctor does not have its flags:\n%s", page)
	}
}
