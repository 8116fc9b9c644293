// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// CloudEvents types.
const (
	TypeMissed     = "overdue.deadline.missed"     // nobody had received a message by its deadline; it was expired
	TypeIncomplete = "overdue.deadline.incomplete" // a message was not settled for good when it had to be; it is still there
	TypeNear       = "overdue.deadline.near"       // a message is not settled yet, and its deadline is as near as somebody wants to know
)

// typePart stands before the last word of a type, by which filters name it.
const typePart = "overdue.deadline."

// eventTypes are all that there are.
var eventTypes = []string{TypeMissed, TypeIncomplete, TypeNear}

// IDOfReminder is [IDOf] for an event of another type about the same message; before tells the warnings of one
// deadline apart, and is 0 for anything else.
func IDOfReminder(eventType, entity string, number int64, enqueued time.Time, before time.Duration) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%d\n%d", eventType, strings.ToLower(entity), number, enqueued.UnixMilli(), before.Milliseconds()))
	return hex.EncodeToString(sum[:16])
}

// severity is how bad what the page tells of is, where a missed deadline is as bad as worst: critical, error, warning
// or info. A warning is never worse than that.
func (p Notification) severity(worst string) string {
	if p.Labels["type"] == TypeNear && (worst == "critical" || worst == "error") {
		return "warning"
	}
	return worst
}
