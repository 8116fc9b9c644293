// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/terminal"
)

// helpWidth is how many columns the lines of help have at most.
const helpWidth = 100

// wrapHelp breaks the texts and the flags of c and of every command below it into lines. Examples
// stay as they are: people copy them.
func wrapHelp(c *cobra.Command) {
	paragraphs := strings.Split(c.Long, "\n\n")
	for i, text := range paragraphs {
		if !strings.HasPrefix(text, " ") && !strings.Contains(text, "\n ") { // otherwise it is a list or code
			paragraphs[i] = terminal.Wrap(strings.ReplaceAll(text, "\n", " "), helpWidth, 0)
		}
	}
	c.Long = strings.Join(paragraphs, "\n\n")
	if !c.HasParent() { // its template is that of all commands
		c.SetUsageTemplate(strings.ReplaceAll(c.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth)))
	}
	for _, sub := range c.Commands() {
		wrapHelp(sub)
	}
}
