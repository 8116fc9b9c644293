// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
)

// A brokerEntityView is one entity with a page of its messages and the forms that change it.
type brokerEntityView struct {
	page
	letterTable
	queueTable // of the subscriptions of a topic
	spot
	Cards           []card
	Notice          string
	Kind, Facts     string
	List            string // what the messages are
	Previous, Next  string // links; "" = there is none
	All             string // link to the messages of all states; "" = this is it
	Partial         bool   // the page ends at maxScanned, not at maxLetters
	Form            sendForm
	SendTo, PurgeAt string // where the forms go; "" = there is none
	IsTopic         bool
}

// A spot is what a page is about: an entity of a namespace, and the messages there in a state.
type spot struct {
	namespace *broker.Namespace
	place     dlq.Place
	queue     *queue.Queue // of the messages; that of the dead letters too
	state     messageState
}

// A messageState is one of those that the messages of an entity can be listed by.
type messageState struct{ name, list string }

var (
	allStates = messageState{"", "Messages"}
	dead      = messageState{"dead", "Dead letters"}
	states    = []messageState{{"active", "Active messages"}, {"scheduled", "Scheduled messages"}, {"deferred", "Deferred messages"}, dead}
)

// has reports whether a message is in the state. Dead letters have a queue of their own.
func (s messageState) has(v *queue.View) bool {
	return s == allStates || s == dead || s.name == stateNames[v.State]
}

var stateNames = map[queue.State]string{queue.Active: "active", queue.Scheduled: "scheduled", queue.Deferred: "deferred"}

// spotOf reads the address of a page.
func (p *BrokerPages) spotOf(r *http.Request) (s spot, err error) {
	if s.namespace, err = httpapi.NamespaceOf(p.source.Broker, r); err != nil {
		return s, badRequest(err)
	}
	if s.place, err = dlq.ParsePlace(parameter(r, "path")); err != nil {
		return s, badRequest(err)
	}
	name := parameter(r, "state")
	if i := slices.IndexFunc(states, func(s messageState) bool { return s.name == name }); i >= 0 {
		s.state = states[i]
	} else if s.state = allStates; name != "" {
		return s, refusal{http.StatusBadRequest, "state is none of active, scheduled, deferred and dead"}
	}
	path := s.place.String()
	if s.state == dead {
		path = s.place.Path()
	}
	if s.queue, err = s.namespace.Inspect(path); errors.Is(err, broker.ErrEntityNotFound) {
		err = refusal{http.StatusNotFound, fmt.Sprintf("there is no queue, topic or subscription %q", s.place)}
	}
	return s, err
}

// link is the page of the entity in a state.
func (s *spot) link(state messageState, more ...string) string {
	return entityLink(brokerPath, s.namespace.Name(), s.place.String(), append(more, "state", state.name)...)
}

// to is the address of something else about the spot.
func (s *spot) to(what string, more ...string) string {
	return brokerPath + what + "?" + values(append(more, "path", s.place.String(), "namespace", s.namespace.Name(), "state", s.state.name)...)
}

func (s *spot) isTopic() bool {
	_, err := s.namespace.TopicInfo(s.place.String())
	return err == nil
}

// notices are what an action has done, by the name in the address to which it leads.
var notices = map[string]string{
	"sent":        "The message is sent.",
	"resubmitted": "A copy of the dead letter is sent, and the dead letter is deleted.",
	"deleted":     "The message is deleted.",
	"purged":      "All messages are deleted.",
}

// entity shows one entity.
func (p *BrokerPages) entity(w http.ResponseWriter, r *http.Request) {
	v, err := p.entityView(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	v.Notice = notices[parameter(r, "done")]
	v.Events = v.to("events", "from", parameter(r, "from"), "upto", parameter(r, "upto"))
	show(w, "entity_messages.html", v, nil)
}

// refuse shows why there is nothing else to show.
func (p *BrokerPages) refuse(w http.ResponseWriter, r *http.Request, err error) {
	v := &letterView{page: p.page("entities", "Messages"), Back: p.homeOf(parameter(r, "namespace")), BackTo: "All entities"}
	show(w, "letter.html", v, err)
}

func (p *BrokerPages) entityView(r *http.Request) (*brokerEntityView, error) {
	s, err := p.spotOf(r)
	if err != nil {
		return nil, err
	}
	v := &brokerEntityView{page: p.page("entities", s.place.String()), spot: s, List: s.state.list}
	v.Home = p.homeOf(s.namespace.Name())
	main, err := s.namespace.Inspect(s.place.String())
	if err != nil {
		return nil, err // it has just been deleted
	}
	counts := main.Counts()
	v.IsTopic = s.isTopic()
	v.describe(main.Config())
	if v.IsTopic {
		t := &v.queueTable
		t.fill(s.namespace, s.place.Entity+between, func(path string) string { return entityLink(p.base, s.namespace.Name(), path) })
		t.Query = ""
	}
	v.Cards = countCards(counts, v.Kind)
	for i := range v.Cards {
		v.Cards[i].Link, v.Cards[i].Current = s.link(states[i]), s.state == states[i]
	}
	switch {
	case s.state != allStates:
		v.All = s.link(allStates)
	case v.IsTopic: // which keeps no others
		v.List, v.Cards = states[1].list, v.Cards[1:2]
	}
	if v.PurgeAt = s.to("purge"); s.place.Subscription == "" {
		v.SendTo = s.to("send")
	}
	return v, v.read(r)
}

// describe says what is special about the entity.
func (v *brokerEntityView) describe(c queue.Config) {
	if v.IsTopic {
		v.Kind, v.Facts = "topic", "A topic: what is sent here is received from its subscriptions."
		return
	}
	v.Kind = "queue"
	if v.place.Subscription != "" {
		v.Kind = "subscription"
	}
	v.Facts = fmt.Sprintf("Locks last %v. A message is dead-lettered after %s.", c.LockDuration, plural.Of(c.MaxDeliveryCount, "failed delivery", "failed deliveries"))
	if c.DefaultMessageTimeToLive > 0 {
		v.Facts += fmt.Sprintf(" Messages live for %v at most.", c.DefaultMessageTimeToLive)
	}
	if c.DeadLetteringOnMessageExpiration {
		v.Facts += " What expires is dead-lettered."
	} else {
		v.Facts += " What expires is dropped."
	}
	if c.RequiresSession {
		v.Facts += " Each message has a session."
	}
	if c.RequiresDuplicateDetection {
		v.Facts += " Duplicates are dropped."
	}
}

// A listing is a page of the messages of a spot.
type listing struct {
	views   []queue.View // in the order of their numbers
	at      int64        // where the next page in the same direction begins
	more    bool         // there is one
	partial bool         // it ends at maxScanned, not at maxLetters
}

// collect lists messages from a sequence number upwards, or downwards to those before it.
func (s *spot) collect(at int64, back bool) (l listing, err error) {
	const block = 250
	peek, step := s.queue.Peek, int64(1)
	if back {
		peek, step = s.queue.PeekBack, -1
	}
	l.at = at
	for scanned := 0; !l.more; {
		views, err := peek(nil, l.at, block)
		if err != nil || len(views) == 0 {
			return l, err
		}
		for i := range views {
			if l.more = len(l.views) == maxLetters || scanned == maxScanned; l.more {
				l.partial = len(l.views) < maxLetters
				break
			}
			scanned++
			l.at = views[i].SequenceNumber + step
			if s.state.has(&views[i]) {
				l.views = append(l.views, views[i])
			}
		}
	}
	return l, nil
}

// read fills the page of messages: from a sequence number on, or up to one.
func (v *brokerEntityView) read(r *http.Request) error {
	from, err := number64(r, "from")
	if err != nil {
		return err
	}
	upto, err := number64(r, "upto")
	if err != nil {
		return err
	}
	back := upto > 0
	l, err := v.collect(max(from, upto), back)
	if err != nil {
		return err
	}
	v.Partial = l.partial
	up, down := l.at, from-1 // where the pages beside this one begin
	if back {
		slices.Reverse(l.views)
		up, down = upto+1, l.at
	}
	if len(l.views) > 0 && !back {
		down = l.views[0].SequenceNumber - 1
	}
	if back || l.more {
		v.Next = v.link(v.state, "from", strconv.FormatInt(up, 10))
	}
	if back && l.more || !back && from > 0 {
		v.Previous = v.link(v.state, "upto", strconv.FormatInt(down, 10))
	}
	now := v.namespace.Now()
	for i := range l.views {
		row, err := v.row(&l.views[i], now)
		if err != nil {
			return err
		}
		v.Letters = append(v.Letters, row)
	}
	return nil
}

// number64 returns a sequence number among the parameters, 0 for none.
func number64(r *http.Request, name string) (int64, error) {
	text := parameter(r, name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, refusal{http.StatusBadRequest, name + " is not a sequence number"}
	}
	return n, nil
}

// row is a message in a list.
func (s *spot) row(v *queue.View, now time.Time) (letterRow, error) {
	l, err := letterOf(v)
	if err != nil {
		return letterRow{}, err
	}
	row := newLetterRow(s.place, l, now)
	row.Link, row.Message = s.to("message", "number", row.Number), ""
	row.State = stateText(v, s.state == dead, now)
	row.Deliveries, row.Expires = strconv.Itoa(v.DeliveryCount), momentOf(v.ExpiresAt, now)
	return row, nil
}

// letterOf reads a message as a peek shows it.
func letterOf(v *queue.View) (*dlq.Letter, error) {
	encoded, err := message.Append(nil, v, message.Overlay{Peeked: true})
	if err != nil {
		return nil, err
	}
	return dlq.Parse(encoded)
}

// stateText says how a message stands.
func stateText(v *queue.View, isDead bool, now time.Time) string {
	expired := !v.ExpiresAt.IsZero() && !v.ExpiresAt.After(now)
	switch {
	case v.Locked:
		return "locked, " + span(max(0, v.LockedUntil.Sub(now))) + " left"
	case isDead:
		return ""
	case v.State == queue.Scheduled:
		return "scheduled, in " + span(max(0, v.ScheduledEnqueueTime.Sub(now)))
	case v.State == queue.Active && expired:
		return "expired, until somebody receives"
	}
	return stateNames[v.State]
}
