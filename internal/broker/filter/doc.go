// SPDX-License-Identifier: Apache-2.0

// Package filter is the SQL dialect of Service Bus: the conditions that rules
// of a subscription select messages by, and the actions that change what they
// have selected.
//
// A [Filter] or an [Action] is parsed once and then used by any number of
// goroutines. It knows messages by the interface [Message] only.
//
// Questions that the documentation of the service leaves open are decided here, in one place each:
//
//   - A comparison with NULL, with a user property that does not exist, or of
//     types that do not compare is unknown, and unknown selects nothing.
//   - Strings compare by their bytes, with case, LIKE included.
//   - Where the grammar asks for a predicate, a property, a parameter, property()
//     or TRUE and FALSE are taken, too; they hold where they are the boolean true.
//   - Integers wrap, as those of C# do. Dividing one by zero, arithmetic on what
//     is no number, and a LIKE with an escape that is no single character are an
//     [EvalError].
package filter
