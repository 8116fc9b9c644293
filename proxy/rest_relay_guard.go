// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

// refuseOfMonitorQueue keeps clients from reading, writing and changing the monitor queue, as
// refuseLink and watch do at the AMQP endpoint: the relay has the proxy's own rights. Clients may
// read its description and receive its dead letters.
func (p *Proxy) refuseOfMonitorQueue(method string, q *rights.Request) error {
	var guarded bool
	switch {
	case p.cfg.MonitorQueue == "":
	case q.Call == rights.Administer: // deleting or changing the queue, or an address below it
		guarded = method != http.MethodGet && method != http.MethodHead && slices.ContainsFunc(p.monitorQueues(), func(name string) bool {
			return address.Below(q.Need.Path, name)
		})
	default:
		guarded = q.Address.SubQueue == address.Main && p.isMonitorQueue(q.Address.Entity())
	}
	if !guarded {
		return nil
	}
	name := q.Need.Path
	if q.Call != rights.Administer {
		name = q.Address.Entity()
	}
	return rest.BadRequest("%s is the monitor queue, which apps do not receive from and do not change.", rest.Quoted(name))
}

// monitorQueues are all that there could be: there may have been more, or some of another
// configuration.
func (p *Proxy) monitorQueues() []string {
	return monitorqueue.Of(p.cfg.MonitorQueue, monitorqueue.Most).Names()
}

// refuseForward keeps clients from forwarding messages to entities to which they may not send: to
// the monitor queue, and, with keys, to entities for which they have no token. The namespace
// cannot check that, since it sees the proxy's own token.
func (p *Proxy) refuseForward(r *http.Request, body []byte) error {
	if r.Method != http.MethodPut || p.cfg.Upstream.Authorize == nil && p.cfg.MonitorQueue == "" {
		return nil
	}
	if len(body) == 0 {
		return nil
	}
	targets, err := atom.Forwards(bytes.NewReader(body))
	if err != nil {
		return rest.BadRequest("The description of the entity is refused: %s.", err)
	}
	now := time.Now()
	for _, t := range targets {
		if p.isMonitorQueue(t.To.Entity()) {
			return rest.BadRequest("%s is the monitor queue, to which nothing is forwarded.", rest.Quoted(t.To.Entity()))
		}
		if len(p.cfg.Keys) == 0 {
			continue
		}
		token := cmp.Or(r.Header.Get(proofs[t.Element]), r.Header.Get(authorization))
		g, err := p.keys().Token(token, t.To.String(), now)
		if err == nil && !g.Holds(now, sas.Send|sas.Manage) {
			err = sas.Missing(sas.Send, t.To.String())
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errDenied, err)
		}
	}
	return nil
}

// proofs lists the headers whose tokens must be good for the target of forwarded messages and
// dead letters.
var proofs = map[string]string{
	atom.ForwardTo: supplementaryAuthorization, atom.ForwardDeadLettersTo: deadLetterAuthorization,
}
