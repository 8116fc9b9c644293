// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"overdue/internal/address"
	"overdue/internal/rights"
	"overdue/internal/sas"
	"overdue/internal/sbrest"
)

// refuseOfMonitorQueue keeps clients from reading, writing and changing the monitor queue, as refuseLink and watch do at the
// AMQP door: the relay has the proxy's own rights. To look at its description and to receive its dead letters is free.
func (p *Proxy) refuseOfMonitorQueue(method string, q *rights.Request) error {
	var guarded bool
	switch {
	case p.cfg.MonitorQueue == "":
	case q.Call == rights.Administer: // a client that takes it away, or what lies below it
		guarded = method != http.MethodGet && method != http.MethodHead && address.Below(q.Need.Path, p.cfg.MonitorQueue)
	default:
		guarded = q.Address.SubQueue == address.Main && p.isMonitorQueue(q.Address.Entity())
	}
	if !guarded {
		return nil
	}
	return sbrest.BadRequest("%s is the monitor queue, which apps do not receive from and do not change.", sbrest.Quoted(p.cfg.MonitorQueue))
}

// refuseForward keeps clients from having messages forwarded to where they may not send themselves: to the monitor
// queue, and, where there are keys, to what theirs are not good for. The namespace cannot judge that, since it sees the
// proxy's own token.
func (p *Proxy) refuseForward(r *http.Request, body []byte) error {
	if r.Method != http.MethodPut || p.cfg.Upstream.Authorize == nil && p.cfg.MonitorQueue == "" {
		return nil
	}
	targets, err := forwardTargets(body)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, t := range targets {
		if p.cfg.MonitorQueue != "" && strings.EqualFold(t.path, p.cfg.MonitorQueue) {
			return sbrest.BadRequest("%s is the monitor queue, to which nothing is forwarded.", sbrest.Quoted(p.cfg.MonitorQueue))
		}
		if len(p.cfg.Keys) == 0 {
			continue
		}
		token := cmp.Or(r.Header.Get(t.proof), r.Header.Get(authorization))
		g, err := p.keys().Token(token, t.path, now)
		if err == nil && !g.Holds(now, sas.Send|sas.Manage) {
			err = sas.Missing(sas.Send, t.path)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errDenied, err)
		}
	}
	return nil
}

// A forward is where the messages of an entity, or its dead letters, are to go.
type forward struct {
	path  string // without slashes around it
	proof string // the header whose token has to be good for it
}

// forwards are the elements of a description that say so.
var forwards = map[string]string{"forwardto": supplementaryAuthorization, "forwarddeadletteredmessagesto": deadLetterAuthorization}

// forwardTargets reads where the description of an entity forwards to. What cannot be read here, or may be read
// otherwise elsewhere, is refused.
func forwardTargets(body []byte) (targets []forward, err error) {
	d := xml.NewDecoder(bytes.NewReader(body)) // of UTF-8 only
	var element string
	var text strings.Builder
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return targets, nil
		case err != nil:
			return nil, sbrest.BadRequest("The description of the entity cannot be read: %s.", err)
		}
		switch t := token.(type) {
		case xml.Directive: // it may define what &x; stands for
			return nil, sbrest.BadRequest("The description of the entity has a document type.")
		case xml.StartElement:
			if name := strings.ToLower(t.Name.Local); forwards[name] != "" {
				element = name
				text.Reset()
			}
		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			if element == "" || strings.ToLower(t.Name.Local) != element {
				continue
			}
			to, err := address.Parse(strings.TrimSpace(text.String()))
			if err != nil {
				return nil, sbrest.BadRequest("The description of the entity forwards to %s.", err)
			}
			if !to.IsNamespace() {
				targets = append(targets, forward{to.String(), forwards[element]})
			}
			element = ""
		}
	}
}
