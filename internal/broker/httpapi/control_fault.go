// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/duration"
)

// A faultForm is a broker.Fault in JSON. error is "server-busy", "full" or the
// name of a condition, such as "amqp:link:detach-forced".
type faultForm struct {
	ID          int64            `json:"id,omitempty"`
	Entity      string           `json:"entity,omitempty"`
	Operation   broker.Operation `json:"operation,omitempty"` // attach, send, receive, settle, management, token
	Request     string           `json:"request,omitempty"`
	After       int              `json:"after,omitempty"`
	Times       int              `json:"times,omitempty"`
	Delay       string           `json:"delay,omitempty"` // "1.5s"
	Error       string           `json:"error,omitempty"`
	Description string           `json:"description,omitempty"`
	Detach      bool             `json:"detach,omitempty"`
	Cut         bool             `json:"cut,omitempty"`
	Silent      bool             `json:"silent,omitempty"`
}

// fault checks the form.
func (f *faultForm) fault() (broker.Fault, error) {
	out := broker.Fault{
		Entity: f.Entity, Operation: f.Operation, Request: f.Request, After: f.After, Times: f.Times,
		Detach: f.Detach, Cut: f.Cut, Silent: f.Silent,
	}
	operations := []broker.Operation{"", broker.OnAttach, broker.OnSend, broker.OnReceive, broker.OnSettle, broker.OnManagement, broker.OnToken}
	if !slices.Contains(operations, f.Operation) {
		return out, badControl("operation %.50q is none of %v", f.Operation, operations[1:])
	}
	if f.Delay != "" {
		d, err := duration.Parse(f.Delay)
		if err != nil || d < 0 {
			return out, badControl(`delay %.50q is no duration; write one like "1.5s"`, f.Delay)
		}
		out.Delay = d
	}
	switch f.Error {
	case "":
	case "server-busy":
		out.Error = broker.ServerBusy()
	case "full":
		out.Error = broker.EntityFull()
	default:
		// A misspelt server-busy would be a condition that no client knows.
		if !strings.Contains(f.Error, ":") {
			return out, badControl("error %.50q is none of server-busy, full, or a condition such as amqp:link:detach-forced", f.Error)
		}
		out.Error = amqp.Errorf(amqp.Symbol(f.Error), "%s", cmp.Or(f.Description, "Told to fail."))
	}
	if f.After < 0 || f.Times < 0 {
		return out, badControl("after and times cannot be negative")
	}
	if out.Error == nil && !f.Detach && !f.Cut && !f.Silent && out.Delay == 0 {
		return out, badControl("nothing is to happen: give one of delay, error, detach, cut, silent")
	}
	return out, nil
}

// maxFaults is how many faults can be there at a time.
const maxFaults = 1000

// A faultList remembers what was injected over HTTP.
type faultList struct {
	mu   sync.Mutex
	last int64
	all  []listedFault
}

type listedFault struct {
	form      faultForm
	namespace *broker.Namespace
	remove    func()
}

func (c *control) inject(n *broker.Namespace, r *http.Request) (any, error) {
	var form faultForm
	if err := readJSON(r, &form); err != nil {
		return nil, err
	}
	fault, err := form.fault()
	if err != nil {
		return nil, err
	}
	l := &c.faults
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == maxFaults {
		return nil, badControl("there are %d faults already; remove some", maxFaults)
	}
	l.last++
	form.ID = l.last
	l.all = append(l.all, listedFault{form, n, n.Inject(fault)})
	return form, nil
}

func (c *control) listFaults(n *broker.Namespace, _ *http.Request) (any, error) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	forms := []faultForm{}
	for _, f := range c.faults.all {
		if f.namespace == n {
			forms = append(forms, f.form)
		}
	}
	return forms, nil
}

// heal removes the fault that the path names, or all of the namespace.
func (c *control) heal(n *broker.Namespace, r *http.Request) (any, error) {
	s := r.PathValue("id")
	if s == "" {
		c.faults.forget(n)
		n.Heal()
		return nil, nil
	}
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, badControl("%.50q is no id of a fault", s)
	}
	l := &c.faults
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.all, func(f listedFault) bool { return f.namespace == n && f.form.ID == id })
	if i < 0 {
		return nil, badControl("there is no fault %d; GET %sfaults lists those that there are", id, ControlPath)
	}
	l.all[i].remove()
	l.all = slices.Delete(l.all, i, i+1)
	return nil, nil
}

// forget drops the entries of a namespace whose faults are removed otherwise.
func (l *faultList) forget(n *broker.Namespace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(f listedFault) bool { return f.namespace == n })
}
