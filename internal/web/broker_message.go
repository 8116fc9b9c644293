// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
)

// letterActions are what can be done with one message: where the forms go.
type letterActions struct {
	Delete   string
	Resubmit string // "" = it is no dead letter
	To       string // where a copy goes
}

var errGone = refusal{http.StatusNotFound, "This message is not there any more: it was received, expired or deleted, or has become active under another number."}

// find returns the message that a page is about.
func (s *spot) find(r *http.Request) (*queue.View, error) {
	number, err := number64(r, "number")
	if err != nil {
		return nil, err
	}
	views, err := s.queue.Peek(nil, number, 1)
	if err != nil {
		return nil, err
	}
	if len(views) == 0 || views[0].SequenceNumber != number {
		return nil, errGone
	}
	return &views[0], nil
}

// message shows one message.
func (p *BrokerPages) message(w http.ResponseWriter, r *http.Request) {
	p.showMessage(w, r, nil)
}

// showMessage shows one message, and what an action has failed of.
func (p *BrokerPages) showMessage(w http.ResponseWriter, r *http.Request, failure error) {
	s, err := p.spotOf(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	v := &letterView{page: p.page("entities", "Message"), Entity: s.place.String(), Back: s.link(s.state), BackTo: s.state.list + " of " + s.place.String(), IsDead: s.state == dead}
	v.Home = p.homeOf(s.namespace.Name())
	found, err := s.find(r)
	if err == nil {
		err = v.fillView(&s, found)
	}
	show(w, "letter.html", v, cmp.Or(failure, err))
}

// fillView takes over what the page shows of a message.
func (v *letterView) fillView(s *spot, found *queue.View) error {
	l, err := letterOf(found)
	if err != nil {
		return err
	}
	v.Title = fmt.Sprintf("Message %d of %s", found.SequenceNumber, s.place)
	if v.IsDead {
		v.Title = fmt.Sprintf("Dead letter %d of %s", found.SequenceNumber, s.place)
	}
	v.Whole = "GET " + httpapi.ControlPath + "messages/{path}"
	v.add("State", stateText(found, v.IsDead, s.namespace.Now()))
	if found.Locked {
		v.add("Locked until (UTC)", stamp(found.LockedUntil))
	}
	if found.State == queue.Scheduled {
		v.add("Scheduled for (UTC)", stamp(found.ScheduledEnqueueTime))
	}
	if l.Due.Truncate(time.Millisecond).Equal(found.ExpiresAt.Truncate(time.Millisecond)) {
		l.Due = time.Time{} // the deadline is the end of its life
	}
	v.add("Expires (UTC)", stamp(found.ExpiresAt))
	v.add("Dead-lettered (UTC)", stamp(found.DeadLetteredTime))
	v.fill(s.place, l)
	v.Message = ""
	number := fmt.Sprint(found.SequenceNumber)
	v.Act = &letterActions{Delete: s.to("delete", "number", number)}
	if v.IsDead {
		v.Act.Resubmit, v.Act.To = s.to("resubmit", "number", number), s.place.Entity
	}
	return nil
}
