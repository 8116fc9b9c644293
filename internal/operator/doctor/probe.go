// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"overdue/internal/monitorqueue"
	"overdue/internal/plural"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// deadLetterQueue is the path of a dead-letter queue, behind that of its entity.
const deadLetterQueue = "/$DeadLetterQueue"

// monitorQueue checks a queue that holds companions.
func (x *examiner) monitorQueue(ctx context.Context, name string) []Finding {
	n := &notes{subject: "monitor queue " + name}
	d, err := x.describe(ctx, name)
	isGone := errors.Is(err, entities.ErrNotFound)
	switch {
	case err == nil:
		x.judgeMonitorQueue(n, name, &d)
	case !isGone:
		x.unknownSettings(n, err)
	}
	if isGone || x.reachable && x.rights(ctx, n, "send", name, "Overdue writes companions there, and does not start without it", "") {
		x.missing = true
		f := n.add(Error, "exists", "It does not exist.", x.createCommand(name))
		if isGone { // the administration API has answered, and can create it
			f.Fixable, f.repair = true, &Repair{Entity: name, Create: true, Set: monitorSettings}
		}
		return n.all
	}
	if !x.reachable {
		return n.all
	}
	why := "Overdue measures the broker's clock there, and cancels companions"
	if x.cfg.Monitor {
		why = "the monitor receives companions there, and notices no deadline without it"
	}
	x.rights(ctx, n, "listen", name, why, "")
	x.unreceived(ctx, n, name, err != nil || d.Counts.Active > 0)
	if err == nil {
		return n.all
	}
	// The Listen right suffices to see that companions failed.
	switch some, err := x.peek(ctx, name+deadLetterQueue); {
	case err != nil && !link.Unauthorized(err): // that the right is missing is known
		n.add(Unknown, "failed-companions", fmt.Sprintf("Its dead letters could not be read: %s.", failure.Reason(err)), "")
	case some:
		n.addFailedCompanions(name, "Some")
	}
	return n.all
}

// formerQueues reports the queues that companions were written to with a larger number of monitor
// queues. Without the administration API they are not known: a peek might create a queue.
func (x *examiner) formerQueues(ctx context.Context) []Finding {
	all := x.queues()
	n := &notes{subject: "former monitor queues"}
	for i := all.Len(); i < monitorqueue.Most; i++ {
		name := all.Name(i)
		d, err := x.describe(ctx, name)
		if err != nil && !errors.Is(err, entities.ErrNotFound) && !errors.Is(err, errSilent) {
			n.add(Unknown, "former", fmt.Sprintf("It is unknown whether there is a queue %s: %s.", name, failure.Reason(err)), "")
		}
		if err != nil || d.Kind == entities.Topic {
			break
		}
		if left := d.Counts.Active + d.Counts.Scheduled; left > 0 {
			n.add(Advice, "former", fmt.Sprintf("%s still holds %s, but monitorQueues is %d.", name, plural.Of(left, "companion, and monitors receive it", "companions, and monitors receive them"), all.Len()),
				"leave it until it is empty")
		} else {
			n.add(Advice, "former", fmt.Sprintf("%s is empty, and monitorQueues is %d: Overdue does not need it.", name, all.Len()), "delete it, once no process has a larger monitorQueues")
		}
	}
	return n.all
}

// entity checks one monitored queue or topic.
func (x *examiner) entity(ctx context.Context, w *Monitored) []Finding {
	n := &notes{subject: w.title(0)}
	d, err := x.describe(ctx, w.Name)
	known, isGone := err == nil, errors.Is(err, entities.ErrNotFound)
	topic := w.Topic
	switch {
	case known:
		n.subject = w.title(d.Kind)
		topic = d.Kind == entities.Topic
	case !isGone:
		x.unknownSettings(n, err)
		for _, name := range w.Subscriptions {
			d.Subscriptions = append(d.Subscriptions, entities.SubscriptionDetails{Subscription: entities.Subscription{Name: name}})
		}
	}
	sends := x.cfg.Proxy && !x.cfg.ClientTokens && d.Status != "Disabled" && d.Status != "SendDisabled"
	if isGone || x.reachable && sends && x.rights(ctx, n, "send", w.Name, "Overdue sends there for apps", "") {
		n.add(Error, "exists", "It does not exist.", x.createEntity(w))
		return n.all
	}
	if x.cfg.IsUnalerted != nil && !w.States && x.cfg.IsUnalerted(w.Name) {
		n.add(Warning, "sinks", "No sink gets its missed deadlines: only the log, the metrics and the history have them.", "add a sink for it to alerts, or change their entities, labels and events")
	}
	if known {
		x.mu.Lock()
		x.judgeEntity(n, w, &d)
		x.mu.Unlock()
		x.forwards(ctx, n, n.subject, d.UpdatedAt, d.ForwardTo, d.ForwardDeadLetteredMessagesTo)
		for i := range d.Subscriptions {
			s := &d.Subscriptions[i]
			x.forwards(ctx, n, fmt.Sprintf("subscription %s/%s", w.Name, s.Name), s.UpdatedAt, s.ForwardTo, s.ForwardDeadLetteredMessagesTo)
		}
	}
	if !x.reachable || !x.cfg.Monitor || d.Status == "Disabled" || d.Status == "ReceiveDisabled" {
		return n.all
	}
	const why = "the monitor checks it and expires overdue messages"
	if !topic {
		if x.rights(ctx, n, "listen", w.Name, why, "") {
			// For a topic one has to ask each subscription, and we do not know whether this is one.
			n.add(Unknown, "right-listen", "It is a topic, or does not exist. Without the Manage right, nobody can tell.", "if it is a topic, list it as one in monitor.entities, with its subscriptions")
		}
		return n.all
	}
	for _, s := range d.Subscriptions {
		sub := &notes{subject: fmt.Sprintf("subscription %s/%s", w.Name, s.Name)}
		if x.rights(ctx, sub, "listen", w.Name+"/Subscriptions/"+s.Name, why, w.Name) {
			sub.add(Error, "exists", "It does not exist.", "remove it from "+w.Setting)
		}
		n.all = append(n.all, sub.all...)
	}
	return n.all
}

// setUpTime is how long an emulator may take to make what its configuration names. What forwards
// may be made before its target there.
const setUpTime = time.Minute

// forwards checks where what was last updated at an instant forwards to. A forward is bound to the
// queue or topic that there was then, and not to its name (azure-service-bus 693).
func (x *examiner) forwards(ctx context.Context, n *notes, subject string, updated time.Time, to ...string) {
	sub := &notes{subject: subject}
	for _, name := range to {
		if name == "" {
			continue
		}
		const rebind = "change any setting of it, and change that back: so it is bound to the queue or topic that there is now"
		switch target, err := x.describe(ctx, name); {
		case errors.Is(err, entities.ErrNotFound):
			sub.add(Error, "forwarding-target", fmt.Sprintf("It forwards to %s, which does not exist, so what it forwards becomes a dead letter.", name), fmt.Sprintf("create %s, then %s", name, rebind))
		case err == nil && target.CreatedAt.Sub(updated) > setUpTime:
			sub.add(Error, "forwarding-target", fmt.Sprintf("It forwards to an earlier %s, which was deleted. The one that there is now was created later than the settings of what forwards, so what that forwards becomes a dead letter.", name), rebind)
		}
	}
	n.all = append(n.all, sub.all...)
}

func (x *examiner) createEntity(w *Monitored) string {
	kind := "queue"
	if w.Topic {
		kind = "topic"
	}
	fix := fmt.Sprintf("add the %s %s to the configuration of the emulator", kind, w.Name)
	if !x.cfg.Emulator {
		fix = fmt.Sprintf("az servicebus %s create %s --name %s", kind, azTarget(x.cfg.Host), w.Name)
		if kind == "queue" {
			fix += " --enable-dead-lettering-on-message-expiration true"
		}
	}
	if w.Setting != "" {
		fix += ", or remove it from " + w.Setting
	}
	return fix
}

// targets checks what Overdue itself sends to.
func (x *examiner) targets(ctx context.Context) (all []Finding) {
	if !x.reachable || !x.cfg.Monitor {
		return nil
	}
	for _, t := range x.cfg.Targets {
		n := &notes{subject: "target " + t.Name}
		if x.rights(ctx, n, "send", t.Name, t.Setting+" refers to it", "") {
			n.add(Error, "exists", fmt.Sprintf("It does not exist, but %s refers to it.", t.Setting), "create it, or change "+t.Setting)
		}
		all = append(all, n.all...)
	}
	return all
}

// errSilent is the error of requests that are not worth making.
var errSilent = errors.New("the administration API does not answer")

// unknownSettings reports that the settings of an entity could not be read.
func (x *examiner) unknownSettings(n *notes, err error) {
	fix := ""
	if errors.Is(err, entities.ErrNoRight) {
		fix = x.manage()
	}
	n.add(Unknown, "settings", fmt.Sprintf("Its settings are unknown (%s).", failure.Reason(err)), fix)
}

// describe reads the settings of an entity.
func (x *examiner) describe(ctx context.Context, name string) (entities.Details, error) {
	if x.cfg.Admin == nil || !x.adminAnswers {
		return entities.Details{}, errSilent
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return x.cfg.Admin.Describe(ctx, name)
}

// rights checks whether we may send to or listen at path. gone reports that there is no such
// entity. owner is the entity on which to grant the right, if that is not path.
func (x *examiner) rights(ctx context.Context, n *notes, what, path, why, owner string) (gone bool) {
	var err error
	if what == "send" {
		err = x.trySend(ctx, path)
	} else {
		began := time.Now()
		_, err = x.peek(ctx, path)
		x.trip(time.Since(began), err)
	}
	claim := strings.ToUpper(what[:1]) + what[1:]
	switch condition := failure.Condition(err); {
	case err == nil:
		n.add(OK, "right-"+what, fmt.Sprintf("The %s right is granted.", claim), "")
	case condition == link.ConditionNotFound:
		return true
	case condition == link.ConditionUnauthorized:
		if owner == "" {
			owner = path
		}
		n.add(Error, "right-"+what, fmt.Sprintf("The %s right is missing (%s): %s.", claim, failure.Reason(err), why), x.grant(claim, owner))
	default:
		n.add(Unknown, "right-"+what, fmt.Sprintf("The %s right could not be checked: %s.", claim, failure.Reason(err)), "")
	}
	return false
}

// trip keeps the shortest round trip. The first peek takes several, because it opens links.
func (x *examiner) trip(took time.Duration, err error) {
	const roundTrips = 4 // token, session, links, peek
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if one := took / roundTrips; x.roundTrip == 0 || one < x.roundTrip {
		x.roundTrip = one
	}
}

// grant says how to grant a right.
func (x *examiner) grant(claim, entity string) string {
	role := map[string]string{"Send": "Azure Service Bus Data Sender", "Listen": "Azure Service Bus Data Receiver"}[claim]
	if x.cfg.Emulator {
		return fmt.Sprintf("give the key the %s right", claim)
	}
	return fmt.Sprintf("az role assignment create --assignee <identity> --role %q --scope <resource id of %s>; or use a key with %s", role, entity, claim)
}

// trySend opens a link to send and closes it again.
func (x *examiner) trySend(ctx context.Context, entity string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s, err := x.cfg.Links.Sender(ctx, entity)
	if err == nil {
		s.Close(ctx)
	}
	return err
}

// peek reports whether there is a message. It needs the Listen right. It opens no link to the queue
// itself, so the broker expires nothing.
func (x *examiner) peek(ctx context.Context, path string) (some bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, err := x.cfg.Links.Peeker(ctx, path)
	if err != nil {
		return false, err
	}
	ms, err := p.Peek(ctx, 0, 1)
	if err != nil {
		return false, err // it is closed
	}
	p.Close(ctx)
	return len(ms) > 0, nil
}

// sentence returns text with a capital letter and a full stop.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".")
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
