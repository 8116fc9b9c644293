// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/rest"
)

// maxForm is how many bytes a form has at most: what is larger is sent by an app.
const maxForm = 1 << 20

// act carries out a form, and leads to the page of the entity.
func (p *BrokerPages) act(do func(*http.Request, *spot) (done string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			p.refuse(w, r, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the form cannot be read, or has more than %d bytes", maxForm)})
			return
		}
		s, err := p.spotOf(r)
		if err != nil {
			p.refuse(w, r, err)
			return
		}
		done, err := do(r, &s)
		if err == nil {
			err = refused(s.namespace.Disk().Wait())
		}
		switch {
		case err == nil:
			http.Redirect(w, r, s.link(s.state, "done", done), http.StatusSeeOther)
		case r.URL.Query().Has("number"):
			p.showMessage(w, r, err)
		default:
			p.showForm(w, r, err)
		}
	}
}

// showForm shows a form again, and why nothing came of it.
func (p *BrokerPages) showForm(w http.ResponseWriter, r *http.Request, failure error) {
	v, err := p.entityView(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	v.Form = readForm(r)
	show(w, "entity_messages.html", v, failure)
}

// refused is a refusal of the broker as an error; nil stays nil.
func refused(err *amqp.Error) error {
	if err == nil {
		return nil
	}
	return refusal{http.StatusConflict, err.Description}
}

// A sendForm is a message as it is typed.
type sendForm struct{ Body, Properties, ContentType, MessageID, SessionID, Subject, Life, Delay string }

func readForm(r *http.Request) sendForm {
	return sendForm{
		Body:        strings.ReplaceAll(r.PostForm.Get("body"), "\r\n", "\n"), // a form ends lines so
		Properties:  r.PostForm.Get("properties"),
		ContentType: strings.TrimSpace(r.PostForm.Get("content-type")),
		MessageID:   r.PostForm.Get("message-id"),
		SessionID:   r.PostForm.Get("session-id"),
		Subject:     r.PostForm.Get("subject"),
		Life:        strings.TrimSpace(r.PostForm.Get("ttl")),
		Delay:       strings.TrimSpace(r.PostForm.Get("delay")),
	}
}

// IsFilled reports whether somebody has typed something.
func (f *sendForm) IsFilled() bool { return *f != sendForm{} }

// message is what the form says, at the instant now.
func (f *sendForm) message(now time.Time) (m *rest.Message, err error) {
	m = &rest.Message{
		Body: []byte(f.Body),
		Broker: rest.BrokerProperties{
			ContentType: f.ContentType,
			Label:       f.Subject,
			MessageID:   f.MessageID,
			SessionID:   f.SessionID,
		},
	}
	if m.Properties, err = readProperties(f.Properties); err != nil {
		return nil, err
	}
	if m.Broker.TimeToLive, err = readSpan("the time to live", f.Life); err != nil {
		return nil, err
	}
	delay, err := readSpan("the time until it becomes active", f.Delay)
	if delay > 0 {
		m.Broker.ScheduledEnqueueTime = now.Add(delay)
	}
	return m, err
}

// readSpan reads an optional duration.
func readSpan(what, text string) (d time.Duration, err error) {
	if text == "" {
		return 0, nil
	}
	if d, err = duration.Parse(text); err != nil || d < time.Millisecond || d > amqp.LongestLife {
		return 0, badRequest(fmt.Errorf("%s is a duration such as 90s, 5m or 1h30m: %.50q is none", what, text))
	}
	return d.Truncate(time.Millisecond), nil
}

// readProperties reads name=value lines. A value is a number or a boolean where it looks like one,
// and else a text, with or without quotes.
func readProperties(text string) (map[string]any, error) {
	all := map[string]any{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, badRequest(fmt.Errorf("a property is a line such as tenant=blue: %.50q is none", line))
		}
		all[name] = propertyValue(strings.TrimSpace(value))
	}
	return all, nil
}

func propertyValue(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	if quoted, err := strconv.Unquote(text); err == nil {
		return quoted
	}
	return text
}

// sendTyped sends what was typed.
func sendTyped(r *http.Request, s *spot) (done string, err error) {
	form := readForm(r)
	m, err := form.message(s.namespace.Now())
	if err != nil {
		return "", err
	}
	encoded, err := httpapi.Encode(m)
	if err != nil {
		return "", badRequest(err)
	}
	return "sent", s.send(encoded)
}

// send sends an encoded message to the queue or topic.
func (s *spot) send(encoded []byte) error {
	to, refusal := s.namespace.Target(s.place.Entity)
	if refusal == nil {
		refusal = to.Send(encoded)
	}
	return refused(refusal)
}

// purgeEntity deletes all messages, or all dead letters where these are listed.
func purgeEntity(_ *http.Request, s *spot) (done string, err error) {
	path := s.place.String()
	if s.state == dead {
		path = s.place.Path()
	}
	_, err = s.namespace.Purge(path)
	return "purged", err
}

// deleteOne deletes one message.
func deleteOne(r *http.Request, s *spot) (done string, err error) {
	found, err := s.find(r)
	if err == nil {
		err = s.delete(found)
	}
	return "deleted", err
}

func (s *spot) delete(v *queue.View) error {
	if err := refused(s.namespace.Disk().Trouble()); err != nil {
		return err
	}
	err := s.queue.Delete(v.SequenceNumber)
	if errors.Is(err, queue.ErrMessageNotFound) {
		return errGone
	}
	return err
}

// resubmitOne sends a copy of a dead letter to where it was sent to, and deletes it. A crash in
// between leaves both.
func resubmitOne(r *http.Request, s *spot) (done string, err error) {
	if s.state != dead {
		return "", refusal{http.StatusBadRequest, "only a dead letter can be resubmitted"}
	}
	found, err := s.find(r)
	if err != nil {
		return "", err
	}
	if found.Locked {
		return "", refusal{http.StatusConflict, "a receiver has locked this dead letter; try again when its lock has lapsed"}
	}
	l, err := letterOf(found)
	if err != nil {
		return "", err
	}
	to, err := s.namespace.Inspect(s.place.Entity)
	if err != nil {
		return "", err
	}
	copying := dlq.Copying{NewIDs: to.Config().RequiresDuplicateDetection}
	encoded, err := copying.Encode(s.place, l)
	if err != nil {
		return "", err
	}
	if err := s.send(encoded); err != nil {
		return "", err
	}
	return "resubmitted", s.delete(found)
}
