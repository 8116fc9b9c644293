// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"time"
)

// maxWarnings bounds the warnings of one deadline: each takes a check, and a companion that is written again.
const maxWarnings = 8

// parseDurations reads several, separated by commas, within the bounds of the setting. They are kept as they are written in Go.
func (s *Setting) parseDurations(text string) ([]string, error) {
	all := splitList(text)
	for i, one := range all {
		d, err := ParseDuration(one)
		if err == nil {
			err = s.bounds(int64(d), func(n int64) string { return time.Duration(n).String() })
		}
		if err != nil {
			return nil, err
		}
		all[i] = d.String()
	}
	return all, nil
}

// checkReminders refuses reminders that can never be sent.
func (e *Entity) checkReminders(c *Config, key string) error {
	within, of := e.Deadline, "deadline"
	if ttl := e.DefaultMessageTimeToLive; ttl > 0 && (within == 0 || ttl < within) {
		within, of = ttl, "defaultMessageTimeToLive"
	}
	switch {
	case e.CompleteWithin > 0 && e.CompleteWithin <= e.Deadline:
		return fmt.Errorf("%s is %v, and deadline is %v: a message has to be received before it can be completed; make completeWithin the longer one",
			c.At(key+".completeWithin"), e.CompleteWithin, e.Deadline)
	case !e.Adopt && e.AdoptEvery != byPath["monitor.entities[].adoptEvery"].standard():
		return fmt.Errorf("%s is given and adopt is not; set adopt: true, or remove it", c.At(key+".adoptEvery"))
	case within > 0 && slices.ContainsFunc(e.WarnBefore, func(d time.Duration) bool { return d >= within }):
		return fmt.Errorf("%s is %v, and %s is %v: the reminder would come before the message; make each of warnBefore shorter than %s",
			c.At(key+".warnBefore"), slices.Max(e.WarnBefore), of, within, of)
	case len(e.WarnBefore) > maxWarnings:
		return fmt.Errorf("%s has %d durations; give at most %d", c.At(key+".warnBefore"), len(e.WarnBefore), maxWarnings)
	}
	return nil
}
