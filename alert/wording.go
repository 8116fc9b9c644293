// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"overdue/internal/servicebus/address"
)

// Where names the entity of the group, topic/Subscriptions/name for a subscription, or else the
// namespace.
func (p Notification) Where() string {
	if p.Labels["entity"] == "" {
		return p.Namespace()
	}
	return address.Address{Name: p.Labels["entity"], Subscription: p.Labels["subscription"]}.Entity()
}

// Namespace returns the host of the namespace, with its port unless that is a default one.
func (p Notification) Namespace() string { return strings.TrimPrefix(p.Source, "sb://") }

// events returns the kind of n events: missed deadlines, for example.
func (p Notification) events(n int) string {
	nouns, ok := nounsOf[p.Labels["type"]]
	if !ok {
		nouns = [2]string{"event", "events"}
	}
	if n == 1 {
		return nouns[0]
	}
	return nouns[1]
}

var nounsOf = map[string][2]string{
	TypeMissed:     {"missed deadline", "missed deadlines"},
	TypeIncomplete: {"message not completed in time", "messages not completed in time"},
	TypeNear:       {"approaching deadline", "approaching deadlines"},
	TypeBlind:      {"blind time", "blind times"},
	typeTest:       {"test event", "test events"},
}

// Title returns the default title, one line.
func (p Notification) Title() string {
	switch {
	case p.Labels["type"] == TypeBlind && p.Count == 1 && len(p.Samples) == 1 && p.Samples[0].Blind != nil:
		b := p.Samples[0].Blind
		return fmt.Sprintf("Blind on %s %s: %s", p.Where(), b.span(), b.outcome())
	case p.Resolved:
		return fmt.Sprintf("Resolved: %d %s on %s, the last at %s", p.Total, p.events(p.Total), p.Where(), stamp(p.Last))
	case p.Count == 0:
		return fmt.Sprintf("%d %s on %s since %s", p.Total, p.events(p.Total), p.Where(), stamp(p.Since))
	case p.Total > p.Count:
		return fmt.Sprintf("%d more %s on %s, %d since %s", p.Count, p.events(p.Count), p.Where(), p.Total, stamp(p.Since))
	}
	return fmt.Sprintf("%d %s on %s", p.Count, p.events(p.Count), p.Where())
}

// Text returns the default text, several lines.
func (p Notification) Text() string {
	var lines []string
	if p.Namespace() != "" {
		lines = append(lines, "Namespace: "+p.Namespace())
	}
	if labels := p.ownLabels(); labels != "" {
		lines = append(lines, "Labels: "+labels)
	}
	if p.WorstLag > 0 && p.Labels["type"] == TypeMissed {
		lines = append(lines, fmt.Sprintf("Dead-lettered up to %s after the deadline", roughly(p.WorstLag)))
	}
	if p.Resolved && p.Labels["type"] == TypeMissed {
		lines = append(lines, p.remaining())
	}
	if advice := p.Advice(); advice != "" {
		lines = append(lines, "What to do: "+advice)
	}
	if len(p.Samples) > 0 && p.Labels["type"] != TypeBlind {
		lines = append(lines, "Messages, the earliest deadline first:")
	}
	for _, e := range p.Samples {
		if e.Blind != nil {
			lines = append(lines, e.Blind.lines(e.Subject)...)
			continue
		}
		line := "- " + e.Subject
		if e.Data.SessionID != "" {
			line += ", session " + e.Data.SessionID
		}
		line += ", due " + stamp(e.Data.Deadline)
		if e.Data.CorrelationID != "" {
			line += ", correlation id " + e.Data.CorrelationID
		}
		lines = append(lines, line)
	}
	if more := p.Count - len(p.Samples); more > 0 && len(p.Samples) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// remaining says whether the dead letters are still there.
func (p Notification) remaining() string {
	d := p.DeadLetters
	if d == nil {
		return "Dead letters: not counted, see the dead-letter queue"
	}
	asOf := " (as of " + stamp(d.Time) + ")"
	if d.Count == 0 {
		return "Dead letters: none left" + asOf
	}
	count, missed := fmt.Sprint(d.Count), fmt.Sprintf("%d of them from missed deadlines", d.Missed)
	switch {
	case d.Count == 1 && d.Missed == 1:
		missed = "from a missed deadline"
	case d.Count == 1:
		missed = "not from a missed deadline"
	case d.Missed == 0:
		missed = "none of them from missed deadlines"
	case d.Missed == 1:
		missed = "1 of them from a missed deadline"
	case d.Missed == d.Count:
		missed = "all of them from missed deadlines"
	}
	if d.More {
		count = "at least " + count
	}
	return fmt.Sprintf("Dead letters: %s left, %s%s", count, missed, asOf)
}

// Advice says what to do, or is "".
func (p Notification) Advice() string {
	fix := "resubmit or purge the dead letters"
	if commands := p.lists(); commands != "" {
		fix += ": " + commands
	}
	switch kind := p.Labels["type"]; {
	case kind == typeTest:
		return "Nothing. overdue doctor sent this to test the sink"
	case kind == TypeMissed && !p.Resolved:
		return "Check that a consumer of " + p.Where() + " is running and keeps up. Then " + fix
	case kind == TypeMissed && (p.DeadLetters == nil || p.DeadLetters.Count > 0):
		return "R" + fix[1:]
	case kind == TypeBlind:
		return p.blindAdvice()
	case kind == TypeNear && !p.Resolved:
		return "Check that a consumer of " + p.Where() + " is running and keeps up. Messages that nobody receives in time become dead letters"
	case kind == TypeIncomplete && !p.Resolved:
		return "Check whether consumers of " + p.Where() + " hang or keep abandoning messages. The messages are still there"
	}
	return ""
}

// blindAdvice says what to do after a blind time.
func (p Notification) blindAdvice() string {
	var all BlindCounts
	for i := range p.Samples {
		if b := p.Samples[i].Blind; b != nil {
			all.Add(b.BlindCounts)
		}
	}
	var todo []string
	if all.Late > 0 {
		todo = append(todo, "Handle the late ones like any missed deadline: each has its own alert")
	}
	if all.Unknown > 0 {
		todo = append(todo, "Ask the consumers whether they had the messages of unknown outcome in time")
	}
	if all.Lost > 0 {
		todo = append(todo, "Ask the consumers for the lost ones, too: they are on their queues no more, and nobody watched them")
	}
	if todo == nil && p.Count > 0 {
		return "Nothing. No deadline was harmed"
	}
	return strings.Join(todo, ". ")
}

// plainPath is what a path must look like to be shown in a command. Labels come from the monitor
// queue, where anyone with the right to send can write, and people paste commands into a shell.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// lists returns the commands that list the dead letters, or "" if there is none. A topic has no
// dead-letter queue of its own, so there is one command for each of its subscriptions.
func (p Notification) lists() string {
	entity := p.Labels["entity"]
	names := []string{p.Labels["subscription"]}
	switch {
	case names[0] != "":
	case p.DeadLetters != nil && len(p.DeadLetters.Subscriptions) > 0:
		names = p.DeadLetters.Subscriptions
	case len(p.Samples) > 0:
		names = nil
		for i := range p.Samples {
			if name := p.Samples[i].Data.Subscription; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var commands []string
	for _, name := range names[:min(len(names), samples)] {
		path := entity
		if name != "" {
			path = address.SubscriptionPath(entity, name)
		}
		if !plainPath.MatchString(path) {
			return ""
		}
		commands = append(commands, "overdue dlq list "+path)
	}
	return strings.Join(commands, ", ")
}
