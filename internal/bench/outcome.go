// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"strings"
)

// An outcome is what became of one message.
type outcome struct {
	completed int // by consumers
	dead      int // how often it is a dead letter
	letter    deadLetter
	notice    notice
}

// outcomesOf returns the outcomes of messages by message-id, from the ids of completed ones, the
// notifications by message-id, and dead letters.
func outcomesOf(completed []string, notices map[string]notice, letters []deadLetter) map[string]outcome {
	all := make(map[string]outcome, len(completed)+len(letters))
	for _, id := range completed {
		o := all[id]
		o.completed++
		all[id] = o
	}
	for _, l := range letters {
		o := all[l.MessageID]
		o.dead++
		o.letter = l
		all[l.MessageID] = o
	}
	for id, n := range notices {
		o := all[id]
		o.notice = n
		all[id] = o
	}
	return all
}

// lost reports whether the message is nowhere.
func (o outcome) lost() bool { return o.completed+o.dead == 0 }

// twice reports whether the message has two ends or two notifications. One that is lost has none.
func (o outcome) twice() bool {
	return o.completed+o.dead > 1 || !o.lost() && o.notice.count > 1
}

// A breach is a number of messages for which a promise was broken.
type breach struct {
	messages int
	what     string
}

// breachesIn returns an error that names the broken promises of a case.
func breachesIn(where string, breaches ...breach) error {
	var errs []error
	for _, b := range breaches {
		if b.messages > 0 {
			errs = append(errs, errors.New(strings.TrimSpace(fmt.Sprintf("%s %d %s", where, b.messages, b.what))))
		}
	}
	return errors.Join(errs...)
}
