// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"time"

	"overdue/internal/servicebus/entities"
)

const (
	// trips is how many round trips a consumer needs to get a message, settle it and be late with neither.
	trips = 10
	// shortest is below what any consumer can be expected to receive a message in.
	shortest = time.Second
	// minLockDuration is the least that Service Bus takes.
	minLockDuration = 5 * time.Second
)

// Watched is a queue or topic that is monitored, and what the configuration says of it.
type Watched struct {
	Name     string
	Setting  string        // where it is listed, such as monitor.entities[0]; "" = nowhere
	Topic    bool          // it is listed as one
	Deadline time.Duration // of messages that state none; 0 = their time to live
	Expire   string        // "auto" or "", "native", "scan", "session"
	States   bool          // all of its messages state a deadline

	Subscriptions []string // of a topic, as far as the configuration names them
	// Contradictions is what the configuration says otherwise of how the entity was made. nil: it says nothing.
	Contradictions func(entities.Info) []string
}

// place is one of the places where messages wait: a queue, or a subscription.
type place struct {
	entity, subscription string
	entities.Subscription
	status string
}

// judgeEntity says what is wrong with a monitored queue or topic.
func (x *examiner) judgeEntity(n *notes, w *Watched, d *entities.Details) {
	before := len(n.all)
	if w.Setting != "" && w.Topic != (d.Kind == entities.Topic) {
		is, key := "queue", "queue"
		if d.Kind == entities.Topic {
			is, key = "topic", "topic"
		}
		n.add(Error, "kind", fmt.Sprintf("It is a %s, and the configuration says otherwise.", is), fmt.Sprintf("write it as %s: %s in %s", key, w.Name, w.Setting))
		return
	}
	if w.Contradictions != nil {
		if wrong := w.Contradictions(d.Info); len(wrong) > 0 {
			n.add(Warning, "contradiction", fmt.Sprintf("The configuration says otherwise, and the namespace counts: %s.", strings.Join(wrong, ", ")),
				fmt.Sprintf("correct %s, or leave out what the namespace tells", w.Setting))
		}
	}
	if d.RequiresDuplicateDetection {
		n.add(Advice, "duplicate-detection", "It detects duplicates by message-id. A message without one gets a random one on its way through Overdue, so a repeated send of it is a second message.",
			"let the app set the message-id")
	}
	if d.Partitioned {
		n.add(Advice, "partitioning", "It is partitioned: a look reads it from its beginning, and costs more the more there is in it.", "")
	}
	if d.Kind == entities.Topic {
		x.judgeStatus(n, d.Status, w.Name, "")
		if len(d.Subscriptions) == 0 {
			n.add(Advice, "subscriptions", "It has no subscription: what is sent there is dropped.", "")
		}
		for i := range d.Subscriptions {
			s := &d.Subscriptions[i]
			sub := &notes{subject: fmt.Sprintf("subscription %s/%s", w.Name, s.Name)}
			x.judgePlace(sub, w, d.DefaultMessageTimeToLive, &place{w.Name, s.Name, s.Subscription, s.Status})
			n.all = append(n.all, sub.all...)
		}
	} else {
		x.judgePlace(n, w, 0, &place{entity: w.Name, status: d.Status, Subscription: entities.Subscription{
			DefaultMessageTimeToLive: d.DefaultMessageTimeToLive, LockDuration: d.LockDuration, AutoDeleteOnIdle: d.AutoDeleteOnIdle,
			RequiresSession: d.RequiresSession, DeadLetteringOnMessageExpiration: d.DeadLetteringOnMessageExpiration,
			ForwardTo: d.ForwardTo, ForwardDeadLetteredMessagesTo: d.ForwardDeadLetteredMessagesTo,
		}})
	}
	if len(n.all) == before {
		n.add(OK, "settings", "Its settings are right.", "")
	}
}

// judgePlace says what is wrong with a queue, or with a subscription of a topic that caps times to live.
func (x *examiner) judgePlace(n *notes, w *Watched, topicTimeToLive time.Duration, p *place) {
	set := func(prop property, value string, ours bool) change {
		return change{host: x.cfg.Host, emulator: x.cfg.Emulator, entity: p.entity, subscription: p.subscription, property: prop, value: value, ours: ours}
	}
	x.judgeStatus(n, p.status, p.entity, p.subscription)
	if p.ForwardTo != "" {
		n.add(Advice, "forwarding", fmt.Sprintf("What arrives goes on to %s, and its deadline is watched there.", p.ForwardTo), fmt.Sprintf("see that %s is monitored, and that there is the right to listen to it", p.ForwardTo))
		return
	}
	if p.ForwardDeadLetteredMessagesTo != "" {
		n.add(Advice, "forwarding-dead-letters", fmt.Sprintf("Dead letters go on to %s.", p.ForwardDeadLetteredMessagesTo), fmt.Sprintf("give the monitor the right to listen to %s, or it cannot tell which deadlines were missed", p.ForwardDeadLetteredMessagesTo))
	}
	ttl := p.DefaultMessageTimeToLive
	if ttl == 0 || topicTimeToLive > 0 && topicTimeToLive < ttl {
		ttl = topicTimeToLive
	}
	if !p.DeadLetteringOnMessageExpiration {
		severity, rest := Warning, "the broker drops messages whose time to live ends, and nothing shows that a deadline was missed."
		if ttl > 0 || w.Expire == "native" {
			severity = Error
		}
		n.cure(severity, "dead-lettering", "It does not dead-letter on expiry: "+rest, set(deadLettering, "true", true))
	}
	x.judgeDeadline(n, w, ttl, p, set)
	switch {
	case p.RequiresSession && (w.Expire == "native" || w.Expire == "scan"):
		n.add(Advice, "sessions", fmt.Sprintf("It requires sessions, for which expire: %s is not meant.", w.Expire), fmt.Sprintf("set %s.expire: auto", w.Setting))
	case !p.RequiresSession && w.Expire == "session":
		n.add(Error, "sessions", "It has no sessions, and the configuration says expire: session.", fmt.Sprintf("set %s.expire: auto", w.Setting))
	}
}

// judgeDeadline compares the deadline of messages that state none with what else ends them.
func (x *examiner) judgeDeadline(n *notes, w *Watched, ttl time.Duration, p *place, set func(property, string, bool) change) {
	deadline, stated := w.Deadline, "The configured deadline"
	if deadline == 0 || ttl > 0 && ttl < deadline {
		deadline, stated = ttl, "The default time to live"
	}
	if w.Deadline > 0 && ttl > 0 && ttl < w.Deadline {
		n.cure(Warning, "time-to-live", fmt.Sprintf("The configured deadline of %s is later than the default time to live, which ends messages after %s.", span(w.Deadline), span(ttl)),
			set(timeToLive, written(w.Deadline), false))
	}
	if p.AutoDeleteOnIdle > 0 {
		severity := Advice
		if p.AutoDeleteOnIdle <= deadline {
			severity = Error
		}
		n.cure(severity, "auto-delete", fmt.Sprintf("It is deleted, with its messages, when nobody has used it for %s.", span(p.AutoDeleteOnIdle)), set(autoDelete, never, false))
	}
	if deadline == 0 {
		if !w.States {
			n.add(Advice, "deadline", "It has no default time to live and no configured deadline: only messages that state one are watched.", x.giveDeadline(w, p))
		}
		return
	}
	least := max(shortest, (x.roundTrip*trips + time.Second - 1).Truncate(time.Second))
	switch trip := x.roundTrip * trips; {
	case deadline < max(shortest, trip):
		fix := fmt.Sprintf("set %s.deadline to %s or more", w.Setting, span(least))
		if deadline == ttl {
			fix = set(timeToLive, written(least), false).command() + ", or to more"
		}
		why := fmt.Sprintf("no consumer receives and settles a message much faster than in %s", span(shortest))
		if trip > shortest {
			why = fmt.Sprintf("a round trip to the namespace takes %s from here", x.roundTrip.Round(time.Millisecond))
		}
		n.add(Warning, "deadline-too-short", fmt.Sprintf("%s of %s can hardly be met: %s.", stated, span(deadline), why), fix)
	case p.LockDuration > max(deadline, minLockDuration):
		x.prefetch = true
		n.add(Advice, "lock-duration", fmt.Sprintf("A message that a consumer has locked counts as received until its lock lapses, up to %s, which is longer than the deadline of %s.", span(p.LockDuration), span(deadline)),
			set(lockDuration, written(max(deadline, minLockDuration)), false).command())
	}
}

// giveDeadline is how the messages of w that state no deadline get one.
func (x *examiner) giveDeadline(w *Watched, p *place) string {
	if w.Setting != "" {
		return "set " + w.Setting + ".deadline"
	}
	kind := "queue"
	if p.subscription != "" {
		kind = "topic"
	}
	fix := fmt.Sprintf("add {%s: %s, deadline: 30s}, or what its messages have time for, to monitor.entities", kind, p.entity)
	if !x.cfg.Lists {
		fix += "; from then on nothing is watched but what is listed there"
	}
	return fix
}

// title is what findings about a monitored entity are grouped under.
func (w *Watched) title(kind entities.Kind) string {
	if kind == entities.Topic || kind == 0 && w.Topic {
		return "topic " + w.Name
	}
	return "queue " + w.Name
}

// sameName compares names of entities as Service Bus does.
func sameName(a, b string) bool { return strings.EqualFold(a, b) }
