// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"overdue/internal/terminal"
)

// raw is w without escapes, for what moves the cursor or has a colour. No text from outside may go there as it is.
func raw(w io.Writer) io.Writer { return terminal.Raw(w) }

// isTerminal reports whether somebody looks at w.
func isTerminal(w io.Writer) bool { return terminal.Is(w) }
