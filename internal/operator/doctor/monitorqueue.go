// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
)

// Settings that the monitor queue needs.
const (
	// bestLock is how long the companions of a monitor that was killed wait for the next one. Monitors
	// renew the locks of companions in hand.
	bestLock = 10 * time.Second
	// maxDeliveries is the most that Service Bus allows. A monitor that stops gives its companions
	// back, which counts.
	maxDeliveries = 2000
	// minDeliveries is enough for a night of restarts.
	minDeliveries = 100
	// minCompanionTTL is how long due companions must be able to wait for a monitor: a long
	// weekend.
	minCompanionTTL = 4 * 24 * time.Hour
	// maxBacklog is how many companions may be due at a time without a warning.
	maxBacklog = 10_000
)

// monitorSettings are the settings of a new monitor queue.
var monitorSettings = []Setting{
	{lockDuration, "PT10S"}, {maxDelivery, strconv.Itoa(maxDeliveries)}, {timeToLive, never}, {deadLettering, "false"},
}

// settingOf is the setting for which the monitor queue has that name.
func (x *examiner) settingOf(name string) string {
	if sameName(name, x.cfg.MonitorQueue) {
		return name
	}
	return fmt.Sprintf("%s, monitorQueues: %d", x.cfg.MonitorQueue, x.queues().Len())
}

// judgeMonitorQueue reports what is wrong with a queue that holds companions.
func (x *examiner) judgeMonitorQueue(n *notes, name string, d *entities.Details) {
	set := func(p property, value string) change {
		return change{host: x.cfg.Host, emulator: x.cfg.Emulator, entity: name, property: p, value: value, applicable: true}
	}
	if d.Kind == entities.Topic {
		n.add(Error, "kind", fmt.Sprintf("%s is a topic, but companions need a queue.", name), "set monitorQueue to the name of a queue")
		return
	}
	before := len(n.all)
	if d.RequiresSession {
		n.add(Error, "sessions", "It requires sessions, which companions do not have. This setting cannot be changed.", x.anotherQueue())
	}
	if d.Partitioned {
		n.add(Warning, "partitioning", "It is partitioned, so companions of messages that were received in time cannot be cancelled, and each costs a check.", x.anotherQueue())
	}
	if d.ForwardTo != "" {
		n.add(Error, "forwarding", fmt.Sprintf("It forwards to %s: due companions go there, and no monitor sees them.", d.ForwardTo), x.unforward(name, "--forward-to", "ForwardTo"))
	}
	if d.ForwardDeadLetteredMessagesTo != "" {
		n.add(Advice, "forwarding-dead-letters", fmt.Sprintf("It forwards its dead letters, which are failed companions, to %s. Look for them there.", d.ForwardDeadLetteredMessagesTo), "")
	}
	x.judgeStatus(n, d.Status, name, "")
	switch ttl := d.DefaultMessageTimeToLive; {
	case ttl == 0:
	case ttl < minCompanionTTL:
		n.addChange(Error, "time-to-live", fmt.Sprintf("Its default time to live is %s: due companions that no monitor receives by then are lost, and so are their deadlines.", duration.Format(ttl)), set(timeToLive, never))
	default:
		n.addChange(Advice, "time-to-live", fmt.Sprintf("Its default time to live is %s: due companions that no monitor receives by then are lost.", duration.Format(ttl)), set(timeToLive, never))
	}
	if d.AutoDeleteOnIdle > 0 {
		n.addChange(Error, "auto-delete", fmt.Sprintf("It is deleted, with all companions in it, after %s without use.", duration.Format(d.AutoDeleteOnIdle)), set(autoDelete, never))
	}
	switch lock := d.LockDuration; {
	case lock == 0 || lock == bestLock:
	case lock < bestLock:
		n.addChange(Warning, "lock-duration", fmt.Sprintf("Its lock duration is %s. Monitors renew locks, but a connection that is lost for that long has companions checked twice.", duration.Format(lock)), set(lockDuration, "PT10S"))
	default:
		n.addChange(Advice, "lock-duration", fmt.Sprintf("Its lock duration is %s: the companions of a monitor that was killed wait that long for the next monitor.", duration.Format(lock)), set(lockDuration, "PT10S"))
	}
	switch c := d.MaxDeliveryCount; {
	case c == 0 || c >= maxDeliveries:
	case c < minDeliveries:
		n.addChange(Warning, "max-delivery-count", fmt.Sprintf("Its max delivery count is %d. A companion that stopping monitors give back that often is dead-lettered, and its deadline is lost.", c), set(maxDelivery, strconv.Itoa(maxDeliveries)))
	default:
		n.addChange(Advice, "max-delivery-count", fmt.Sprintf("Its max delivery count is %d. The maximum, %d, is best.", c, maxDeliveries), set(maxDelivery, strconv.Itoa(maxDeliveries)))
	}
	if dead := d.Counts.DeadLetter; dead > 0 {
		n.addFailedCompanions(name, strconv.FormatInt(dead, 10))
	}
	if due := d.Counts.Active; due > maxBacklog {
		n.add(Warning, "backlog", fmt.Sprintf("%d companions are due and not finished.", due), "make sure that `overdue monitor` is running, and check its metrics; more replicas share the work")
	}
	if len(n.all) == before {
		n.add(OK, "settings", fmt.Sprintf("Its settings are right. Companions: %d scheduled, %d due.", d.Counts.Scheduled, d.Counts.Active), "")
	}
}

// addFailedCompanions reports companions that no monitor could finish with.
func (n *notes) addFailedCompanions(name, many string) {
	n.add(Warning, "failed-companions", many+" of its messages are dead letters: companions that could not be read, or notifications that no sink took.",
		fmt.Sprintf("look at the reasons in %s/$DeadLetterQueue: CompanionMalformed means that another program wrote it, AlertUndeliverable that a sink was down for a day or is no longer configured", name))
}

func (x *examiner) anotherQueue() string {
	return "create another queue and set monitorQueue to its name: " + x.createCommand("overdue-companions")
}

// createCommand says how to create a monitor queue.
func (x *examiner) createCommand(name string) string {
	if x.cfg.Emulator {
		return fmt.Sprintf("add the queue %s to the configuration of the emulator, with LockDuration PT10S and the highest possible MaxDeliveryCount", name)
	}
	return fmt.Sprintf("az servicebus queue create %s --name %s --lock-duration PT10S --max-delivery-count %d", azTarget(x.cfg.Host), name, maxDeliveries)
}

func (x *examiner) unforward(name, flag, property string) string {
	if x.cfg.Emulator {
		return fmt.Sprintf("remove %s from the configuration of the emulator", property)
	}
	return fmt.Sprintf("az servicebus queue update %s --name %s %s \"\"", azTarget(x.cfg.Host), name, flag)
}

// judgeStatus reports what a disabled entity cannot do.
func (x *examiner) judgeStatus(n *notes, is, entity, subscription string) {
	what := map[string]string{
		"Disabled": "It is disabled, so messages cannot be sent, received or expired.", "ReceiveDisabled": "Receiving is disabled, so messages cannot be expired.",
		"SendDisabled": "Sending is disabled.",
	}[is]
	if what == "" {
		return
	}
	severity := Error
	if is == "SendDisabled" && !x.queues().Has(entity) {
		severity = Warning
	}
	n.addChange(severity, "status", what, change{
		host: x.cfg.Host, emulator: x.cfg.Emulator, entity: entity, subscription: subscription, property: status, value: "Active",
	})
}

// written returns d as Service Bus writes it.
func written(d time.Duration) string { return duration.FormatISO8601(d) }
