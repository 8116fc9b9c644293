// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/entityfile"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/duration"
)

// ControlPath is where tests in any language look behind the protocol: state, messages, clock and
// faults of a namespace, in JSON. See controlList.
//
// A broker that isolates namespaces tells them apart as everywhere, by host or
// token, and here by ?namespace=NAME too: few HTTP clients let the host be chosen.
//
// No entity can have that name.
const ControlPath = "/_overdue/"

// control answers requests below ControlPath.
type control struct {
	broker *broker.Broker
	page   http.Handler // nil = there is none
	faults faultList
	mux    *http.ServeMux
}

// newControl returns the handler for ControlPath, with the page and the metrics if there are any. The
// caller decides who may use it.
func newControl(cfg Config) http.Handler {
	c := &control{broker: cfg.Broker, page: cfg.Page, mux: http.NewServeMux()}
	c.mux.HandleFunc(ControlPath, serveControlList)
	if cfg.Metrics != nil {
		c.mux.Handle("GET "+ControlPath+"metrics", cfg.Metrics)
	}
	if cfg.Page != nil {
		c.mux.HandleFunc("GET "+ControlPath+"{$}", c.serveRoot)
		c.mux.Handle(ControlPath+"page/", cfg.Page)
	}
	c.mux.HandleFunc("GET "+ControlPath+"config", c.serveConfig)
	for pattern, h := range map[string]func(*broker.Namespace, *http.Request) (any, error){
		"GET /_overdue/entities":              c.entities,
		"GET /_overdue/messages/{path...}":    c.messages,
		"DELETE /_overdue/messages":           c.purge,
		"DELETE /_overdue/messages/{path...}": c.purge,
		"POST /_overdue/reset":                c.reset,
		"GET /_overdue/clock":                 c.clock,
		"POST /_overdue/clock":                c.setClock,
		"GET /_overdue/faults":                c.listFaults,
		"POST /_overdue/faults":               c.inject,
		"DELETE /_overdue/faults":             c.heal,
		"DELETE /_overdue/faults/{id}":        c.heal,
		"POST /_overdue/detach/{path...}":     c.detach,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, h) })
	}
	return c.mux
}

// errRequest is what is wrong with a request.
var errRequest = errors.New("bad request")

func badControl(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRequest, fmt.Sprintf(format, args...))
}

func (c *control) answer(w http.ResponseWriter, r *http.Request, h func(*broker.Namespace, *http.Request) (any, error)) {
	n, err := NamespaceOf(c.broker, r)
	var v any
	if err != nil {
		err = badControl("%v", err)
	} else {
		v, err = h(n, r)
	}
	switch {
	case err != nil:
		refuseControl(w, err)
		return
	case v == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error is a client that has gone
}

// refuseControl answers with an error.
func refuseControl(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, broker.ErrEntityNotFound):
		http.Error(w, err.Error()+"; GET "+ControlPath+"entities lists those that there are", http.StatusNotFound)
	case errors.Is(err, errRequest):
		http.Error(w, strings.TrimPrefix(err.Error(), errRequest.Error()+": "), http.StatusBadRequest)
	case errors.Is(err, queue.ErrNoRoom), errors.Is(err, queue.ErrNotStored):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// serveConfig answers with a file that makes the entities of the namespace again. Config.json has no
// comments, so a header says how many settings are missing there.
func (c *control) serveConfig(w http.ResponseWriter, r *http.Request) {
	n, err := NamespaceOf(c.broker, r)
	if err != nil {
		refuseControl(w, badControl("%v", err))
		return
	}
	setup := n.Setup()
	switch format := r.URL.Query().Get("format"); format {
	case "", "yaml":
		w.Header().Set("Content-Type", "application/yaml")
		_ = entityfile.YAML(w, &setup, nil) // an error is a client that has gone
	case "emulator":
		var file bytes.Buffer
		left, err := entityfile.Emulator(&file, &setup, nil)
		if err != nil {
			refuseControl(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Overdue-Not-Copied", strconv.Itoa(len(left)))
		_, _ = file.WriteTo(w) // as above
	default:
		refuseControl(w, badControl("format=%.50q is none of yaml and emulator", format))
	}
}

// NamespaceOf returns the namespace that a request to a path below [ControlPath] is for.
func NamespaceOf(b *broker.Broker, r *http.Request) (*broker.Namespace, error) {
	name := r.URL.Query().Get("namespace")
	if name == "" {
		return b.NamespaceOf(r.Host, r.Header.Get("Authorization")), nil
	}
	n, ok := b.Named(name)
	if !ok {
		return nil, fmt.Errorf("there is no namespace %.50q: start the broker with --broker-isolate, name no more than 10000, with 256 bytes at most", name)
	}
	return n, nil
}

// controlList is what people find who look for the control surface by hand.
const controlList = `Behind the protocol, for tests. Answers are JSON, but for config and metrics.

GET    /_overdue/                     this list; in a browser entities and messages, to see and to change
GET    /_overdue/entities             all entities, with counts
GET    /_overdue/messages/{path}      messages of orders, orders/$DeadLetterQueue or events/Subscriptions/audit; ?from=, ?max=
DELETE /_overdue/messages[/{path}]    removes the messages of one of those, or all of them; entities and links stay
POST   /_overdue/reset                as at the start: messages, entities and faults of this namespace
GET    /_overdue/clock                by how much the clock is ahead
POST   /_overdue/clock                {"advance": "1h"} or {"offset": "0s"}
GET    /_overdue/faults               those that are still there
POST   /_overdue/faults               {"entity": "orders", "operation": "send", "error": "server-busy", "times": 1}
DELETE /_overdue/faults[/{id}]        one, or all
POST   /_overdue/detach/{path}        detaches the links of an entity
GET    /_overdue/config               the entities as a configuration file; ?format=emulator as the emulator's Config.json
GET    /_overdue/metrics              those of the admin port, for Prometheus

Every one takes ?namespace=NAME where namespaces are isolated.
`

// serveRoot answers a browser with the page, and everybody else with the list.
func (c *control) serveRoot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		c.page.ServeHTTP(w, r)
		return
	}
	serveControlList(w, r)
}

func serveControlList(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.URL.Path != ControlPath {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, "There is no %.100s.\n\n", r.URL.Path) // an error is a client that has gone
	}
	_, _ = io.WriteString(w, controlList)
}

// maxControlBody bounds a request's body, in bytes.
const maxControlBody = 64 << 10

// readJSON reads the body of r, strictly: a key that is misspelt is an error.
func readJSON(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxControlBody))
	d.DisallowUnknownFields()
	switch err := d.Decode(v); {
	case errors.Is(err, io.EOF):
		return badControl("the body is empty; it has to be JSON, see GET %s", ControlPath)
	case err != nil:
		return badControl("the body is not what is expected, see GET %s: %v", ControlPath, err)
	}
	return nil
}

// An entityForm is one entity as GET /_overdue/entities shows it, and what a purge has removed of
// one.
type entityForm struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"` // queue, topic or subscription
	Active     int    `json:"active"`
	Deferred   int    `json:"deferred"`
	Scheduled  int    `json:"scheduled"`
	DeadLetter int    `json:"deadLetter"`
	Bytes      int64  `json:"bytes"`
}

func (c *control) entities(n *broker.Namespace, _ *http.Request) (any, error) {
	all := []entityForm{}
	for _, e := range n.Entities() {
		all = append(all, newEntityForm(e.Path(), e.Kind(), e.Queue().Counts()))
	}
	return all, nil
}

func newEntityForm(path string, kind broker.Kind, n queue.Counts) entityForm {
	return entityForm{
		Path:       path,
		Kind:       kind.String(),
		Active:     n.Active,
		Deferred:   n.Deferred,
		Scheduled:  n.Scheduled,
		DeadLetter: n.DeadLetter,
		Bytes:      n.Size,
	}
}

// maxControlMessages is how many messages one request shows.
const maxControlMessages = 1000

func (c *control) messages(n *broker.Namespace, r *http.Request) (any, error) {
	from, err := numberOf(r, "from", math.MinInt64, 0)
	if err != nil {
		return nil, err
	}
	most, err := numberOf(r, "max", 1, 100)
	if err != nil {
		return nil, err
	}
	q, err := n.Inspect(r.PathValue("path"))
	if err != nil {
		return nil, err
	}
	views, err := q.Peek(nil, from, int(min(most, maxControlMessages)))
	if err != nil {
		return nil, err
	}
	forms := make([]*messageForm, len(views))
	for i := range views {
		if forms[i], err = formOf(&views[i]); err != nil {
			return nil, err
		}
	}
	return forms, nil
}

// purge removes messages. Those who look for what they sent in vain read in the answer what is gone.
func (c *control) purge(n *broker.Namespace, r *http.Request) (any, error) {
	purged, err := n.Purge(r.PathValue("path"))
	if err != nil {
		return nil, err
	}
	all := make([]entityForm, len(purged))
	for i, p := range purged {
		all[i] = newEntityForm(p.Path, p.Kind, p.Counts)
	}
	return all, nil
}

// numberOf reads a number of the query.
func numberOf(r *http.Request, name string, least, def int64) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < least {
		return 0, badControl("%s=%.50q is no number that fits", name, s)
	}
	return v, nil
}

func (c *control) reset(n *broker.Namespace, _ *http.Request) (any, error) {
	c.faults.forget(n)
	return nil, n.Reset()
}

func (c *control) detach(n *broker.Namespace, r *http.Request) (any, error) {
	return nil, n.Detach(r.PathValue("path"))
}

// A clockForm is what GET /_overdue/clock shows.
type clockForm struct {
	Now    time.Time `json:"now"`
	Offset string    `json:"offset"` // of the namespace's clock against the broker's
}

func (c *control) clock(n *broker.Namespace, _ *http.Request) (any, error) {
	return clockForm{n.Now().UTC(), n.ClockOffset().String()}, nil
}

func (c *control) setClock(n *broker.Namespace, r *http.Request) (any, error) {
	var form struct{ Advance, Offset string }
	if err := readJSON(r, &form); err != nil {
		return nil, err
	}
	var offset time.Duration
	s := form.Offset
	if form.Advance != "" {
		offset, s = n.ClockOffset(), form.Advance
	}
	d, err := duration.Parse(s)
	if err != nil || form.Advance != "" && form.Offset != "" {
		return nil, badControl(`the body has to be {"advance": "90s"} or {"offset": "0s"}`)
	}
	const limit = 100 * 365 * 24 * time.Hour
	if d += offset; d < -limit || d > limit {
		return nil, badControl("an offset of %v is too far", d)
	}
	n.SetClockOffset(d)
	return c.clock(n, r)
}

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
		out.Error = amqp.Errorf(amqp.Symbol(f.Error), "%s", cmp.Or(f.Description, "A fault for tests."))
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

// A messageForm is one message as GET /_overdue/messages shows it.
type messageForm struct {
	SequenceNumber             int64          `json:"sequenceNumber"`
	MessageID                  string         `json:"messageId"`
	SessionID                  string         `json:"sessionId,omitempty"`
	CorrelationID              string         `json:"correlationId,omitempty"`
	Subject                    string         `json:"subject,omitempty"`
	To                         string         `json:"to,omitempty"`
	ReplyTo                    string         `json:"replyTo,omitempty"`
	ContentType                string         `json:"contentType,omitempty"`
	State                      string         `json:"state"` // Active, Deferred or Scheduled
	DeliveryCount              int            `json:"deliveryCount"`
	EnqueuedTime               time.Time      `json:"enqueuedTime"`
	ExpiresAt                  *time.Time     `json:"expiresAt,omitempty"`
	ScheduledEnqueueTime       *time.Time     `json:"scheduledEnqueueTime,omitempty"`
	EnqueuedSequenceNumber     int64          `json:"enqueuedSequenceNumber,omitempty"`
	DeadLetterReason           string         `json:"deadLetterReason,omitempty"`
	DeadLetterErrorDescription string         `json:"deadLetterErrorDescription,omitempty"`
	DeadLetterSource           string         `json:"deadLetterSource,omitempty"`
	DeadLetteredTime           *time.Time     `json:"deadLetteredTime,omitempty"`
	ApplicationProperties      map[string]any `json:"applicationProperties,omitempty"`
	Body                       string         `json:"body,omitempty"`      // where it is text
	BodyBytes                  []byte         `json:"bodyBytes,omitempty"` // where it is not; base64
}

func formOf(v *queue.View) (*messageForm, error) {
	s, err := show(v)
	if err != nil {
		return nil, err
	}
	f := &messageForm{
		SequenceNumber: v.SequenceNumber, MessageID: v.MessageID, SessionID: v.SessionID,
		CorrelationID: s.broker.CorrelationID, Subject: s.broker.Label, To: s.broker.To, ReplyTo: s.broker.ReplyTo,
		ContentType: s.broker.ContentType, State: s.stamps.State, DeliveryCount: v.DeliveryCount,
		EnqueuedTime: v.EnqueuedTime, ExpiresAt: given(v.ExpiresAt), ScheduledEnqueueTime: given(v.ScheduledEnqueueTime),
		EnqueuedSequenceNumber: v.EnqueuedSequenceNumber,
		DeadLetterReason:       v.DeadLetterReason, DeadLetterErrorDescription: v.DeadLetterErrorDescription,
		DeadLetterSource: v.DeadLetterSource, DeadLetteredTime: given(v.DeadLetteredTime),
	}
	for _, p := range s.properties {
		if f.ApplicationProperties == nil {
			f.ApplicationProperties = make(map[string]any)
		}
		f.ApplicationProperties[p.name] = p.value
	}
	if utf8.Valid(s.body) {
		f.Body = string(s.body)
	} else {
		f.BodyBytes = s.body
	}
	return f, nil
}

// given is nil for the zero time.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
