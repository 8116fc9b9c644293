// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
)

const (
	// consumerRoundTrips is how many round trips a consumer needs to receive and to settle a
	// message with ease.
	consumerRoundTrips = 10
	// minDeadline is the shortest deadline that a consumer can be expected to meet.
	minDeadline = time.Second
	// minLockDuration is the shortest that Service Bus accepts.
	minLockDuration = 5 * time.Second
	// minConsumerLock is the shortest lock duration that a fix proposes. Consumers that take longer
	// than their lock lose it, and another consumer receives their message as well.
	minConsumerLock = 30 * time.Second
)

// Monitored is a queue or topic that is monitored, and what the configuration says of it.
type Monitored struct {
	Name     string
	Setting  string        // where it is listed, such as monitor.entities[0]; "" = nowhere
	Topic    bool          // it is listed as one
	Deadline time.Duration // of messages that state none; 0 = their time to live
	Expire   string        // "auto" or "", "native", "scan", "session"
	States   bool          // all of its messages state a deadline

	Subscriptions []string // of a topic, as far as the configuration names them
	// Contradictions returns the settings of the entity about which the configuration is wrong.
	// nil: it states none.
	Contradictions func(entities.Info) []string
}

// place is where messages wait: a queue, or a subscription.
type place struct {
	entity, subscription string
	entities.Subscription
	status string
}

// judgeEntity reports what is wrong with a monitored queue or topic.
func (x *examiner) judgeEntity(n *notes, w *Monitored, d *entities.Details) {
	before := len(n.all)
	if w.Setting != "" && w.Topic != (d.Kind == entities.Topic) {
		is, key := "queue", "queue"
		if d.Kind == entities.Topic {
			is, key = "topic", "topic"
		}
		n.add(Error, "kind", fmt.Sprintf("It is a %s, but the configuration lists it as the other kind.", is), fmt.Sprintf("list it as %s: %s in %s", key, w.Name, w.Setting))
		return
	}
	if w.Contradictions != nil {
		if wrong := w.Contradictions(d.Info); len(wrong) > 0 {
			n.add(Warning, "contradiction", fmt.Sprintf("The configuration is wrong about it, and the settings in the namespace apply: %s.", strings.Join(wrong, ", ")),
				fmt.Sprintf("correct %s, or leave out what the namespace shows", w.Setting))
		}
	}
	if d.RequiresDuplicateDetection {
		n.add(Advice, "duplicate-detection", "It detects duplicates by message id, so a repeated send of a message without an id is a second message.",
			"set the message id in the app")
	}
	if d.Partitioned {
		n.add(Advice, "partitioning", "It is partitioned, so each check reads it from the beginning and costs more the more messages it has.", "")
	}
	if d.Kind == entities.Topic {
		x.judgeStatus(n, d.Status, w.Name, "")
		if len(d.Subscriptions) == 0 {
			n.add(Advice, "subscriptions", "It has no subscriptions, so the broker drops what is sent there.", "")
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

// judgePlace reports what is wrong with a queue, or with a subscription of a topic that limits
// times to live.
func (x *examiner) judgePlace(n *notes, w *Monitored, topicTimeToLive time.Duration, p *place) {
	set := func(prop property, value string, applicable bool) change {
		return change{host: x.cfg.Host, emulator: x.cfg.Emulator, entity: p.entity, subscription: p.subscription, property: prop, value: value, applicable: applicable}
	}
	x.judgeStatus(n, p.status, p.entity, p.subscription)
	if p.ForwardTo != "" {
		n.add(Advice, "forwarding", fmt.Sprintf("It forwards to %s, where deadlines are monitored.", p.ForwardTo), fmt.Sprintf("monitor %s, and grant the Listen right there", p.ForwardTo))
		return
	}
	if p.ForwardDeadLetteredMessagesTo != "" {
		n.add(Advice, "forwarding-dead-letters", fmt.Sprintf("It forwards dead letters to %s.", p.ForwardDeadLetteredMessagesTo), fmt.Sprintf("grant the monitor the Listen right on %s, so that it can see which deadlines were missed", p.ForwardDeadLetteredMessagesTo))
	}
	ttl := p.DefaultMessageTimeToLive
	if ttl == 0 || topicTimeToLive > 0 && topicTimeToLive < ttl {
		ttl = topicTimeToLive
	}
	if !p.DeadLetteringOnMessageExpiration {
		severity := Warning
		if ttl > 0 || w.Expire == "native" {
			severity = Error
		}
		n.addChange(severity, "dead-lettering", "It does not dead-letter on expiration: the broker drops expired messages, and nothing shows that a deadline was missed.", set(deadLettering, "true", true))
	}
	x.judgeDeadline(n, w, ttl, p, set)
	switch {
	case p.RequiresSession && (w.Expire == "native" || w.Expire == "scan"):
		n.add(Advice, "sessions", fmt.Sprintf("It requires sessions, for which expire: %s does not work well.", w.Expire), fmt.Sprintf("set %s.expire: auto", w.Setting))
	case !p.RequiresSession && w.Expire == "session":
		n.add(Error, "sessions", "It has no sessions, but the configuration says expire: session.", fmt.Sprintf("set %s.expire: auto", w.Setting))
	}
}

// judgeDeadline compares the deadline of messages that state none with what else ends their life.
func (x *examiner) judgeDeadline(n *notes, w *Monitored, ttl time.Duration, p *place, set func(property, string, bool) change) {
	configured, setting := w.Deadline, w.Setting+".deadline"
	if configured == 0 || w.Setting == "" {
		configured, setting = x.cfg.Deadline, "monitor.deadline"
	}
	deadline, stated := configured, "The configured deadline"
	if deadline == 0 || ttl > 0 && ttl < deadline {
		deadline, stated = ttl, "The default time to live"
	}
	if configured > 0 && ttl > 0 && ttl < configured {
		n.addChange(Warning, "time-to-live", fmt.Sprintf("The configured deadline of %s is later than the default time to live of %s.", duration.Format(configured), duration.Format(ttl)),
			set(timeToLive, written(configured), false))
	}
	if p.AutoDeleteOnIdle > 0 {
		severity := Advice
		if p.AutoDeleteOnIdle <= deadline {
			severity = Error
		}
		n.addChange(severity, "auto-delete", fmt.Sprintf("It is deleted, with its messages, after %s without use.", duration.Format(p.AutoDeleteOnIdle)), set(autoDelete, never, false))
	}
	if deadline == 0 {
		if !w.States {
			n.add(Advice, "deadline", "It has no default time to live and no configured deadline, so only messages that state a deadline are monitored.", x.giveDeadline(w, p))
		}
		return
	}
	least := max(minDeadline, (x.roundTrip*consumerRoundTrips + time.Second - 1).Truncate(time.Second))
	switch needed := x.roundTrip * consumerRoundTrips; {
	case deadline < max(minDeadline, needed):
		fix := fmt.Sprintf("set %s to %s or more", setting, duration.Format(least))
		if deadline == ttl {
			fix = set(timeToLive, written(least), false).command() + ", or to more"
		}
		why := fmt.Sprintf("no consumer receives and settles a message in much less than %s", duration.Format(minDeadline))
		if needed > minDeadline {
			why = fmt.Sprintf("a round trip to the namespace takes %s from here", x.roundTrip.Round(time.Millisecond))
		}
		n.add(Warning, "deadline-too-short", fmt.Sprintf("%s of %s is hard to meet: %s.", stated, duration.Format(deadline), why), fix)
	case p.LockDuration > max(deadline, minLockDuration):
		x.prefetch = true
		fix := "have consumers settle or abandon messages within the deadline"
		if shorter := max(deadline, minConsumerLock); shorter < p.LockDuration {
			fix = set(lockDuration, written(shorter), false).command() + ", if consumers settle in less"
		}
		n.add(Advice, "lock-duration", fmt.Sprintf("A locked message counts as received until its lock expires, which can take %s: longer than the deadline of %s.", duration.Format(p.LockDuration), duration.Format(deadline)),
			fix)
	}
}

// giveDeadline says how to give a deadline to messages that state none.
func (x *examiner) giveDeadline(w *Monitored, p *place) string {
	if w.Setting != "" {
		return "set " + w.Setting + ".deadline"
	}
	if !x.cfg.ListsAll {
		return "set monitor.deadline, which counts for every queue and topic without a deadline of its own"
	}
	kind := "queue"
	if p.subscription != "" {
		kind = "topic"
	}
	return fmt.Sprintf("add {%s: %s, deadline: 30s} to monitor.entities, with the deadline of your choice", kind, p.entity)
}

// title is the subject of findings about a monitored entity.
func (w *Monitored) title(kind entities.Kind) string {
	if kind == entities.Topic || kind == 0 && w.Topic {
		return "topic " + w.Name
	}
	return "queue " + w.Name
}

// sameName compares names of entities like Service Bus, which ignores case.
func sameName(a, b string) bool { return strings.EqualFold(a, b) }
