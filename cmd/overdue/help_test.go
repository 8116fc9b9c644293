// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestHelpFitsIntoATerminal(t *testing.T) {
	var b bytes.Buffer
	root := tree()
	root.SetOut(&b)
	commands := 0
	walk(root, func(c *cobra.Command) {
		if c.HasParent() && c.Parent().Name() == "completion" {
			return // the text is cobra's
		}
		commands++
		b.Reset()
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		if c.HasAvailableLocalFlags() && !strings.Contains(b.String(), "Flags:\n") {
			t.Errorf("the help of %s shows no flags:\n%s", c.CommandPath(), &b)
		}
		for line := range strings.Lines(b.String()) {
			_, _, breakable := strings.Cut(strings.TrimSpace(line), " ") // a connection string is not
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth && breakable {
				t.Errorf("%s: a line of the help has %d columns, want %d at most:\n%s", c.CommandPath(), n, helpWidth, line)
			}
		}
	})
	if commands < 20 {
		t.Errorf("%d commands, want all", commands)
	}
}

func TestHelpGroupsTheCommands(t *testing.T) {
	var b bytes.Buffer
	root := tree()
	root.SetOut(&b)
	if err := root.Help(); err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, title := range []string{"Start here:", "Run:", "Operate:"} {
		next := strings.Index(b.String(), "\n"+title+"\n")
		if next <= at {
			t.Errorf("the group %q is missing, or not in its place:\n%s", title, &b)
		}
		at = next
	}
	if strings.Contains(b.String(), "Additional Commands") {
		t.Errorf("a command is in no group:\n%s", &b)
	}
	for _, name := range []string{"run", "proxy", "monitor", "broker"} {
		c, _, err := root.Find([]string{name})
		if err != nil || !strings.Contains(c.Example, "overdue "+name) {
			t.Errorf("the help of %s has no example (%v)", name, err)
		}
	}
}
