// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"cmp"
	"errors"

	"overdue/internal/lifecycle"
)

// A Reason is why a process is not ready, as metrics and alerts name it.
type Reason string

// All reasons. Alerts quote them, so none may be renamed.
const (
	Starting Reason = Reason(lifecycle.StateStarting) // nothing has answered yet
	Draining Reason = Reason(lifecycle.StateDraining)
	Stopped  Reason = Reason(lifecycle.StateStopped)

	NamespaceDown       Reason = "namespace_down" // no connection, or no answer
	KeyRefused          Reason = "key_refused"    // so is an identity, or a key without the right
	MonitorQueueMissing Reason = "monitor_queue_missing"
	MonitorQueueFull    Reason = "monitor_queue_full"

	NotReceiving   Reason = "not_receiving"   // the monitor has no link to a monitor queue
	CompanionStore Reason = "companion_store" // the Redis that keeps companions takes none
	JournalFull    Reason = "journal_full"    // or it cannot be written
	Other          Reason = "other"           // /readyz?verbose has the sentence
)

// Reasons are all that a process can be not ready for.
var Reasons = []Reason{
	Starting, Draining, Stopped, NamespaceDown, KeyRefused, MonitorQueueMissing, MonitorQueueFull,
	NotReceiving, CompanionStore, JournalFull, Other,
}

// A Failure is the error of a check with its reason.
type Failure struct {
	Reason Reason
	Err    error
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// ReasonOf returns the reason of an error of a check, which is Other if it states none, and "" for
// nil.
func ReasonOf(err error) Reason {
	stated := &Failure{}
	switch {
	case err == nil:
		return ""
	case errors.As(err, &stated):
		return cmp.Or(stated.Reason, Other)
	}
	return Other
}
