// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
)

// What the monitor queue wants.
const (
	// minLock outlasts a pass over the companions in hand.
	minLock = time.Minute
	// fullDelivery is the most that Service Bus allows. A companion is given back whenever a monitor stops.
	fullDelivery = 2000
	// minDelivery is what a night of restarts takes.
	minDelivery = 100
	// minCompanionLife is how long companions that are due have to wait for a monitor at least: a long weekend.
	minCompanionLife = 4 * 24 * time.Hour
	// backlog is how many companions may be due at a time before somebody should ask why.
	backlog = 10_000
)

// monitorSettings are those that a monitor queue of ours is made with.
var monitorSettings = []Setting{
	{lockDuration, "PT1M"}, {maxDelivery, strconv.Itoa(fullDelivery)}, {timeToLive, never}, {deadLettering, "false"},
}

// judgeMonitorQueue says what is wrong with the queue that holds the companions.
func (x *examiner) judgeMonitorQueue(n *notes, d *entities.Details) {
	name := x.cfg.MonitorQueue
	set := func(p property, value string) change {
		return change{host: x.cfg.Host, emulator: x.cfg.Emulator, entity: name, property: p, value: value, ours: true}
	}
	if d.Kind == entities.Topic {
		n.add(Error, "kind", fmt.Sprintf("%s is a topic; companions need a queue", name), "name a queue with monitorQueue")
		return
	}
	before := len(n.all)
	if d.RequiresSession {
		n.add(Error, "sessions", "It requires sessions, which companions do not have, and that cannot be changed.", x.anotherQueue())
	}
	if d.Partitioned {
		n.add(Warning, "partitioning", "It is partitioned: companions of messages that were received in time cannot be cancelled, and each costs a look.", x.anotherQueue())
	}
	if d.ForwardTo != "" {
		n.add(Error, "forwarding", fmt.Sprintf("It forwards to %s: companions go there when they are due, and no monitor sees them.", d.ForwardTo), x.unforward("--forward-to", "ForwardTo"))
	}
	if d.ForwardDeadLetteredMessagesTo != "" {
		n.add(Advice, "forwarding-dead-letters", fmt.Sprintf("Its dead letters, companions that failed, go to %s; look there for them.", d.ForwardDeadLetteredMessagesTo), "")
	}
	x.judgeStatus(n, d.Status, name, "")
	switch ttl := d.DefaultMessageTimeToLive; {
	case ttl == 0:
	case ttl < minCompanionLife:
		n.cure(Error, "time-to-live", fmt.Sprintf("Companions that are due and find no monitor are gone after %s (its default time to live), and their deadlines with them.", span(ttl)), set(timeToLive, never))
	default:
		n.cure(Advice, "time-to-live", fmt.Sprintf("Companions that are due and find no monitor are gone after %s (its default time to live).", span(ttl)), set(timeToLive, never))
	}
	if d.AutoDeleteOnIdle > 0 {
		n.cure(Error, "auto-delete", fmt.Sprintf("It is deleted, with all companions in it, when nobody has used it for %s.", span(d.AutoDeleteOnIdle)), set(autoDelete, never))
	}
	if d.LockDuration > 0 && d.LockDuration < minLock {
		n.cure(Warning, "lock-duration", fmt.Sprintf("Its lock duration is %s; a pass over many companions takes longer, and they are looked into twice.", span(d.LockDuration)), set(lockDuration, "PT1M"))
	}
	switch c := d.MaxDeliveryCount; {
	case c == 0 || c >= fullDelivery:
	case c < minDelivery:
		n.cure(Warning, "max-delivery-count", fmt.Sprintf("Its max delivery count is %d: a companion that is given back as often, by monitors that stop, is dead-lettered and its deadline not kept.", c), set(maxDelivery, strconv.Itoa(fullDelivery)))
	default:
		n.cure(Advice, "max-delivery-count", fmt.Sprintf("Its max delivery count is %d; %d is the most that there is, and best.", c, fullDelivery), set(maxDelivery, strconv.Itoa(fullDelivery)))
	}
	if dead := d.Counts.DeadLetter; dead > 0 {
		x.failedCompanions(n, strconv.FormatInt(dead, 10))
	}
	if due := d.Counts.Active; due > backlog {
		n.add(Warning, "backlog", fmt.Sprintf("%d companions are due and not done.", due), "see that `overdue monitor` runs, and /metrics of each; more replicas share the work")
	}
	if len(n.all) == before {
		n.add(OK, "settings", fmt.Sprintf("Its settings are right. Companions: %d scheduled, %d due.", d.Counts.Scheduled, d.Counts.Active), "")
	}
}

// failedCompanions tells of what nobody could look into or tell about.
func (x *examiner) failedCompanions(n *notes, many string) {
	n.add(Warning, "failed-companions", many+" of its messages are dead letters: companions that could not be read, or alerts that no sink has taken.",
		fmt.Sprintf("read the reasons in %s/$DeadLetterQueue: CompanionMalformed is a writer that is not ours, AlertUndeliverable a sink that was down for a day, or is configured no more", x.cfg.MonitorQueue))
}

func (x *examiner) anotherQueue() string {
	return "make another queue and name it with monitorQueue: " + x.createCommand("overdue-companions")
}

// createCommand is how a monitor queue is made.
func (x *examiner) createCommand(name string) string {
	if x.cfg.Emulator {
		return fmt.Sprintf("add the queue %s, with LockDuration PT1M and the highest MaxDeliveryCount that there is, to the configuration of the emulator", name)
	}
	return fmt.Sprintf("az servicebus queue create %s --name %s --lock-duration PT1M --max-delivery-count %d", azTarget(x.cfg.Host), name, fullDelivery)
}

func (x *examiner) unforward(flag, property string) string {
	if x.cfg.Emulator {
		return fmt.Sprintf("take %s out of the configuration of the emulator", property)
	}
	return fmt.Sprintf("az servicebus queue update %s --name %s %s \"\"", azTarget(x.cfg.Host), x.cfg.MonitorQueue, flag)
}

// judgeStatus says what a disabled entity cannot do.
func (x *examiner) judgeStatus(n *notes, is, entity, subscription string) {
	what := map[string]string{
		"Disabled": "It is disabled: nothing can be sent, received or expired.", "ReceiveDisabled": "Receiving is disabled: nothing can be expired.",
		"SendDisabled": "Sending is disabled.",
	}[is]
	if what == "" {
		return
	}
	severity := Error
	if is == "SendDisabled" && entity != x.cfg.MonitorQueue {
		severity = Warning
	}
	n.cure(severity, "status", what, change{
		host: x.cfg.Host, emulator: x.cfg.Emulator, entity: entity, subscription: subscription, property: status, value: "Active",
	})
}

// span writes 1m0s as 1m, 12h0m0s as 12h, and 336h0m0s as 14 days.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if n := len(text) - len(zero); n > 1 && text[n:] == zero && (text[n-1] == 'm' || text[n-1] == 'h') {
			text = text[:n]
		}
	}
	return text
}

// written is a span as Service Bus writes it.
func written(d time.Duration) string { return duration.FormatISO8601(d) }
