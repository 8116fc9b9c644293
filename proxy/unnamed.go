// SPDX-License-Identifier: Apache-2.0

package proxy

import "overdue/scheduler"

// A message without a message-id gets one, by which its companion names it. Where there is no room for that it goes without: an
// SDK fills a batch to the last byte that the broker takes. Its companion then says in which window the broker has enqueued it and
// what its deadline is, and stands for whatever is found there: see docs/decisions.

// mayGoUnnamed reports whether messages can be found without a name: where it is known when the broker enqueues them.
func (s *sending) mayGoUnnamed() bool { return s.now.Measured }

// unname takes over to the promises what the messages have gone without: names, and stamps.
func (s *sending) unname() {
	for i := range s.promises {
		pr := &s.promises[i]
		m := s.ms[pr.of]
		if m.Stamp != pr.stamped {
			pr.findable = false // the broker does not expire it then
		}
		if m.ID != "" {
			continue
		}
		ref := &pr.ref
		ref.MessageID, ref.SessionID, ref.PartitionKey = "", "", ""
		if s.settings.Findable && m.ScheduledEnqueueTime.IsZero() {
			// The shorter the window, the fewer others are found in it. A send that takes longer gets a second companion.
			ref.Until = s.now.Time.Add(s.now.Uncertainty + scheduler.SlotWindow + m.Delay)
		}
	}
}

// distinct leaves one of the references without a name that stand for the same messages.
func distinct(refs []scheduler.Reference) []scheduler.Reference {
	first := 0
	for first < len(refs) && !refs[first].Unnamed() { // all of them, mostly
		first++
	}
	out, seen := refs[:first], map[scheduler.Reference]bool{}
	for _, r := range refs[first:] {
		if r.Unnamed() && seen[r] {
			continue
		}
		seen[r] = r.Unnamed()
		out = append(out, r)
	}
	return out
}
