// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

const (
	notFound     = string(amqp.ErrCondNotFound)
	unauthorized = string(amqp.ErrCondUnauthorizedAccess)
)

// monitorQueue looks at the queue that holds the companions: rights first, as they show whether it is there.
func (x *examiner) monitorQueue(ctx context.Context) []Finding {
	name := x.cfg.MonitorQueue
	n := &notes{subject: "monitor queue " + name}
	d, err := x.describe(ctx, name)
	switch {
	case err == nil:
		x.judgeMonitorQueue(n, &d)
	case errors.Is(err, entities.ErrNotFound):
		x.missing = true
		f := n.add(Error, "exists", "It does not exist.", x.createCommand(name))
		f.Fixable, f.repair = true, &Repair{Entity: name, Create: true, Set: monitorSettings}
		return n.all
	default:
		x.unknownSettings(n, err)
	}
	if !x.reachable {
		return n.all
	}
	gone := x.rights(ctx, n, "send", name, "companions are written to it: without it nothing starts", "")
	if gone {
		x.missing = true
		n.add(Error, "exists", "It does not exist.", x.createCommand(name))
		return n.all
	}
	why := "the broker's clock is measured there, and companions are cancelled"
	if x.cfg.Monitor {
		why = "companions are received from it: without it no deadline is noticed"
	}
	x.rights(ctx, n, "listen", name, why, "")
	if err == nil {
		return n.all
	}
	// Whether there are failed companions can be seen without Manage, too.
	if some, err := x.peek(ctx, name+"/$DeadLetterQueue"); err == nil && some {
		x.failedCompanions(n, "Some")
	}
	return n.all
}

// entity looks at one monitored queue or topic.
func (x *examiner) entity(ctx context.Context, w *Watched) []Finding {
	n := &notes{subject: w.title(0)}
	d, err := x.describe(ctx, w.Name)
	known := err == nil
	topic := w.Topic
	switch {
	case known:
		n.subject = w.title(d.Kind)
		topic = d.Kind == entities.Topic
	case errors.Is(err, entities.ErrNotFound):
		n.add(Error, "exists", "It does not exist.", x.make(w))
		return n.all
	default:
		x.unknownSettings(n, err)
		for _, name := range w.Subscriptions {
			d.Subscriptions = append(d.Subscriptions, entities.SubscriptionDetails{Subscription: entities.Subscription{Name: name}})
		}
	}
	sends := x.cfg.Proxy && !x.cfg.ClientTokens && d.Status != "Disabled" && d.Status != "SendDisabled"
	if x.reachable && sends && x.rights(ctx, n, "send", w.Name, "what apps send goes there as this process", "") {
		n.add(Error, "exists", "It does not exist.", x.make(w))
		return n.all
	}
	if known {
		x.mu.Lock()
		x.judgeEntity(n, w, &d)
		x.mu.Unlock()
	}
	if !x.reachable || !x.cfg.Monitor || d.Status == "Disabled" || d.Status == "ReceiveDisabled" {
		return n.all
	}
	const why = "the monitor looks into it and expires what is overdue"
	if !topic {
		if x.rights(ctx, n, "listen", w.Name, why, "") {
			// A subscription is asked at its own path, and nobody said that this is a topic.
			n.add(Unknown, "right-listen", "It is a topic, or not there; without the right Manage that is not told.", "write it as topic, with its subscriptions, in monitor.entities")
		}
		return n.all
	}
	for _, s := range d.Subscriptions {
		sub := &notes{subject: fmt.Sprintf("subscription %s/%s", w.Name, s.Name)}
		if x.rights(ctx, sub, "listen", w.Name+"/Subscriptions/"+s.Name, why, w.Name) {
			sub.add(Error, "exists", "It does not exist.", "take it out of "+w.Setting)
		}
		n.all = append(n.all, sub.all...)
	}
	return n.all
}

func (x *examiner) make(w *Watched) string {
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
		fix += ", or take it out of " + w.Setting
	}
	return fix
}

// targets looks at what Overdue itself sends to.
func (x *examiner) targets(ctx context.Context) (all []Finding) {
	if !x.reachable || !x.cfg.Monitor {
		return nil
	}
	for _, t := range x.cfg.Targets {
		n := &notes{subject: "target " + t.Name}
		if x.rights(ctx, n, "send", t.Name, t.Setting+" names it", "") {
			n.add(Error, "exists", fmt.Sprintf("It does not exist, and %s names it.", t.Setting), "create it, or change "+t.Setting)
		}
		all = append(all, n.all...)
	}
	return all
}

// errSilent stands for questions that need not be asked.
var errSilent = errors.New("the administration API does not answer")

// unknownSettings tells that how an entity was made is not known.
func (x *examiner) unknownSettings(n *notes, err error) {
	fix := ""
	if errors.Is(err, entities.ErrNoRight) {
		fix = x.manage()
	}
	n.add(Unknown, "settings", fmt.Sprintf("Its settings are not told (%s).", Reason(err)), fix)
}

// describe asks the administration API.
func (x *examiner) describe(ctx context.Context, name string) (entities.Details, error) {
	if x.cfg.Admin == nil || !x.told {
		return entities.Details{}, errSilent
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return x.cfg.Admin.Describe(ctx, name)
}

// rights tells whether we may send to or listen at path. gone reports that there is no such entity. owner is the entity
// that a right is given for, where that is not path.
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
	switch condition := conditionOf(err); {
	case err == nil:
		n.add(OK, "right-"+what, fmt.Sprintf("The right %s is there.", claim), "")
	case condition == notFound:
		return true
	case condition == unauthorized:
		if owner == "" {
			owner = path
		}
		n.add(Error, "right-"+what, fmt.Sprintf("The right %s is missing (%s); %s.", claim, Reason(err), why), x.grant(claim, owner))
	default:
		n.add(Unknown, "right-"+what, fmt.Sprintf("Whether the right %s is there could not be checked: %s.", claim, Reason(err)), "")
	}
	return false
}

// trip keeps the shortest round trip that was seen. The time of a peek includes that of opening its links, several
// round trips.
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

// grant is how a right is given.
func (x *examiner) grant(claim, entity string) string {
	role := map[string]string{"Send": "Azure Service Bus Data Sender", "Listen": "Azure Service Bus Data Receiver"}[claim]
	if x.cfg.Emulator {
		return fmt.Sprintf("give the key the right %s", strings.ToLower(claim))
	}
	return fmt.Sprintf("give the identity the role: az role assignment create --assignee <identity> --role %q --scope <resource id of %s>; or use a key with %s", role, entity, claim)
}

// trySend opens a link to send and closes it again.
func (x *examiner) trySend(ctx context.Context, entity string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sender, err := x.cfg.Client.NewSender(entity, nil)
	if err != nil {
		return err
	}
	// The SDK may wait for a dial of somebody else, whatever ctx says.
	answered := make(chan error, 1)
	go func() {
		_, err := sender.NewMessageBatch(ctx, nil)
		_ = sender.Close(ctx) // what matters is whether it could be opened
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// peek reports whether there is a message. It needs the right to listen, opens no link to the queue itself and wakes nothing.
func (x *examiner) peek(ctx context.Context, path string) (some bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// conditionOf is what the namespace said, in the words of AMQP; "" where it said nothing.
func conditionOf(err error) string {
	if err == nil {
		return ""
	}
	if sb := (*azservicebus.Error)(nil); errors.As(err, &sb) {
		switch sb.Code {
		case azservicebus.CodeNotFound:
			return notFound
		case azservicebus.CodeUnauthorizedAccess:
			return unauthorized
		}
	}
	if answer := (*link.StatusError)(nil); errors.As(err, &answer) && answer.Condition == "" && answer.Code == 401 {
		return unauthorized
	}
	return link.Condition(err)
}

// Reason is err as part of a sentence: what the broker says, where it says something, without its tracking ids.
func Reason(err error) string {
	text := plainly(err).Error()
	for _, mark := range []string{" TrackingId:", " Reference:", "\n"} {
		text, _, _ = strings.Cut(text, mark)
	}
	if r := []rune(text); len(r) > 300 {
		text = string(r[:300]) + "…"
	}
	return strings.TrimRight(strings.TrimSpace(text), ".;,")
}

// plainly leaves out what a library puts around the words of the service.
func plainly(err error) error {
	if remote := (*amqp.Error)(nil); errors.As(err, &remote) && remote.Description != "" {
		return errors.New(remote.Description)
	}
	if answer := (*link.StatusError)(nil); errors.As(err, &answer) && answer.Description != "" {
		return errors.New(answer.Description)
	}
	if answer := (*azcore.ResponseError)(nil); errors.As(err, &answer) {
		return fmt.Errorf("status %d %s", answer.StatusCode, answer.ErrorCode)
	}
	if errors.Is(err, entities.ErrNoRight) {
		_, said, _ := strings.Cut(err.Error(), entities.ErrNoRight.Error()+": ")
		return errors.New(cmp.Or(said, "it takes the right Manage"))
	}
	// The SDK prints some errors of the broker like a struct, and those of requests in a sentence of its own.
	if _, said, ok := strings.Cut(err.Error(), "Description: "); ok {
		said, _, _ = strings.Cut(said, ", Info: ")
		return errors.New(said)
	}
	if _, said, ok := strings.Cut(err.Error(), " and description: "); ok && said != "" {
		return errors.New(said)
	}
	if sb := (*azservicebus.Error)(nil); errors.As(err, &sb) {
		return errors.New(strings.TrimPrefix(sb.Error(), "("+string(sb.Code)+"): ")) // a code is for programs
	}
	return err
}

// sentence is text with a capital letter and a full stop.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".")
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
