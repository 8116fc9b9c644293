// SPDX-License-Identifier: Apache-2.0

package filter

import "fmt"

// Bounds of an expression.
const (
	MaxLength     = 1024 // characters, as the service has it
	MaxStatements = 32   // of an action, as its quotas have it
	MaxDepth      = 64   // of parentheses, NOT and signs in one another
)

// maxText bounds in bytes what + makes of strings. All properties of a message
// together have no more, and no expression makes a large message a huge one.
const maxText = 64 << 10

// A SyntaxError says where an expression is not what it has to be.
type SyntaxError struct {
	Position int    // of the first character that is wrong, from 1
	Expected string // what could have stood there
	Found    string // what does
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("at character %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// An EvalError is an expression that has no value for a message. The service
// calls it a filter exception.
type EvalError struct{ Problem string }

func (e *EvalError) Error() string { return e.Problem }

func evalErrorf(format string, args ...any) error {
	return &EvalError{fmt.Sprintf(format, args...)}
}
