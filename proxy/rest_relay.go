// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

const (
	// relayGrace is the time for the namespace's answer on top of the wait that the client asked
	// for.
	relayGrace = 30 * time.Second
	// defaultReceiveWait is the wait of a receive without a timeout; longestReceiveWait caps a
	// stated one.
	defaultReceiveWait = time.Minute
	longestReceiveWait = time.Hour
	// relayStall is how long the body of an answer may make no progress.
	relayStall = 2 * time.Minute
)

// Upstream configures the connection to the namespace's REST API. Requests that are not sends go
// there, and sends that clients make with their own tokens.
type Upstream struct {
	// Dial opens a connection to the namespace's HTTP endpoint, TLS included.
	Dial func(context.Context) (net.Conn, error)
	// Host is the name of the namespace, with the port unless it is the default.
	Host string
	// Authorize returns an Authorization header for an address, such as
	// https://contoso.servicebus.windows.net/orders. nil passes the client's own on.
	Authorize func(ctx context.Context, address string) (string, error)
}

// relay relays a request of the REST API that is not a send, and its answer: peek-lock, receive,
// settle, the administration of entities. It returns nil once the answer has begun. It reads the
// request whole, since a queue that forwards to the monitor queue has to be refused, and streams
// the answer.
func (p *Proxy) relay(w http.ResponseWriter, r *http.Request, q *rights.Request) error {
	wait, isReceive := waitOf(r, q)
	body, done, err := p.body(w, r)
	if err != nil {
		return err
	}
	defer func() { done() }()
	select { // after the body: a slow body takes no place
	case p.relays <- struct{}{}:
		defer func() { <-p.relays }()
	default:
		return errBusy
	}
	if isReceive || len(body) == 0 {
		// A receive needs no body and may wait for long, so it releases its share of the body
		// budget.
		done()
		body, done = nil, func() {}
	}
	if err := p.refuseOfMonitorQueue(r.Method, q); err != nil {
		return err
	}
	if err := p.refuseForward(r, body); err != nil {
		return err
	}
	if r.Method == http.MethodPut {
		body = p.naming(r).Forwards(body)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if isReceive {
		// A stop does not wait for a message, which could take a minute.
		defer context.AfterFunc(p.waits, func() { cancel(errClosed) })()
	}
	silent := time.AfterFunc(wait+relayGrace, func() { cancel(errNoAnswer) })
	defer silent.Stop()
	out, err := p.passedOn(ctx, r, q, body)
	if err != nil {
		return err
	}
	resp, err := p.upstream.RoundTrip(out)
	if err != nil {
		return relayError(ctx, r, err)
	}
	defer func() { _ = resp.Body.Close() }()
	silent.Reset(relayStall)
	p.passAnswer(w, r, resp, q.Call == rights.Administer, func() { silent.Reset(relayStall) })
	return nil
}

// relayError returns the error for a relayed request without an answer. If the client has hung
// up, it aborts the request instead, so that no message is locked for it.
func relayError(ctx context.Context, r *http.Request, err error) error {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // net/http ends the connection
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", errUpstream, err)
}

// waitOf returns how long the request asks the namespace to wait for a message.
func waitOf(r *http.Request, q *rights.Request) (wait time.Duration, isReceive bool) {
	if q.Call != rights.PeekLock && q.Call != rights.ReceiveAndDelete {
		return 0, false
	}
	seconds, err := strconv.ParseUint(r.URL.Query().Get("timeout"), 10, 32)
	if err != nil {
		return defaultReceiveWait, true
	}
	return min(time.Duration(seconds)*time.Second, longestReceiveWait), true
}

// passedOn returns the request for the namespace. It rebuilds the path of a request about
// messages from the parsed form.
func (p *Proxy) passedOn(ctx context.Context, r *http.Request, q *rights.Request, body []byte) (*http.Request, error) {
	host := p.cfg.Upstream.Host
	out, err := http.NewRequestWithContext(ctx, r.Method, "http://namespace/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUpstream, err)
	}
	out.URL = &url.URL{Scheme: "http", Host: host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	if path := q.URLPath(); path != "" {
		if out.URL.Path, err = url.PathUnescape(path); err != nil {
			return nil, fmt.Errorf("%w: %w", errUpstream, err)
		}
		out.URL.RawPath = path
	}
	out.Host = host
	out.Header = endToEnd(rest.RequestHeader(r))
	for _, name := range []string{"Expect", "Host", "Content-Length"} {
		delete(out.Header, name) // net/http writes them, or they are done with
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // keeps net/http from adding one
	}
	if p.cfg.Upstream.Authorize == nil {
		return out, nil
	}
	return out, p.introduce(out, q)
}

// Headers with a client's credentials: for the request, and for the entities to which a new
// entity forwards.
const (
	authorization              = "Authorization"
	supplementaryAuthorization = "ServiceBusSupplementaryAuthorization"
	deadLetterAuthorization    = "ServiceBusDlqSupplementaryAuthorization"
)

// introduce replaces the client's credentials, which were for the endpoint, with the proxy's own.
func (p *Proxy) introduce(out *http.Request, q *rights.Request) error {
	address := "https://" + out.Host + "/"
	for _, header := range []struct{ name, about string }{
		{authorization, q.Need.Path}, {supplementaryAuthorization, ""}, {deadLetterAuthorization, ""},
	} {
		shown := false
		for name := range out.Header {
			if strings.EqualFold(name, header.name) {
				shown = true
				delete(out.Header, name)
			}
		}
		if !shown && header.name != authorization {
			continue
		}
		value, err := p.cfg.Upstream.Authorize(out.Context(), address+header.about)
		if err != nil {
			return fmt.Errorf("%w: %w", errUpstream, err)
		}
		out.Header[header.name] = []string{value}
	}
	return nil
}

// passAnswer passes the namespace's answer on to the client, and calls step after each part. If
// the body ends early, it ends the connection, so that the client does not take the body for
// complete. Answers about entities, and errors, name the namespace as the client does.
func (p *Proxy) passAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response, entities bool, step func()) {
	h := w.Header()
	clear(h)
	for name, values := range endToEnd(resp.Header) {
		if strings.EqualFold(name, "Location") {
			values = []string{p.ownLocation(r, strings.Join(values, ","))}
		}
		h[name] = values
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // keeps net/http from guessing one
	}
	translates := resp.ContentLength != 0 && (entities || resp.StatusCode >= http.StatusBadRequest) &&
		strings.Contains(resp.Header.Get("Content-Type"), "xml")
	if translates || resp.ContentLength < 0 {
		delete(h, "Content-Length")
		h["Transfer-Encoding"] = []string{"chunked"}
	}
	w.WriteHeader(resp.StatusCode)
	if r.Method == http.MethodHead {
		return
	}
	body := stepping{resp.Body, step}
	var err error
	if translates {
		err = p.naming(r).Copy(w, body)
	} else {
		_, err = io.Copy(w, body)
	}
	if err != nil {
		p.cfg.Log.Debug("answer ended early", zap.String("endpoint", endpointREST), zap.Error(err))
		panic(http.ErrAbortHandler) // net/http's way to end the connection
	}
}

// stepping is a reader that calls a function at each read.
type stepping struct {
	io.Reader
	step func()
}

func (s stepping) Read(b []byte) (int, error) {
	s.step()
	return s.Reader.Read(b)
}

// ownLocation translates a Location of the namespace to this endpoint, where the client settles
// the message that it has locked.
func (p *Proxy) ownLocation(r *http.Request, location string) string {
	u, err := url.Parse(location)
	theirs := url.URL{Host: p.cfg.Upstream.Host}
	if err != nil || r.Host == "" || !strings.EqualFold(u.Hostname(), theirs.Hostname()) {
		return location
	}
	_, rest, ok := strings.Cut(location, "://"+u.Host)
	if !ok {
		return location
	}
	return schemeOf(r) + "://" + r.Host + rest
}

// naming translates between the client of r and the namespace.
func (p *Proxy) naming(r *http.Request) atom.Naming {
	return atom.NewNaming(url.URL{Scheme: schemeOf(r), Host: r.Host, Path: r.URL.Path}, p.cfg.Upstream.Host)
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// hopByHop lists the headers that apply to one connection only (RFC 9110, section 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// endToEnd returns a copy of h without the headers that apply to one connection only.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	drop := slices.Clone(hopByHop)
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			drop = append(drop, strings.TrimSpace(name))
		}
	}
	for name := range out {
		if slices.ContainsFunc(drop, func(d string) bool { return strings.EqualFold(name, d) }) {
			delete(out, name)
		}
	}
	return out
}

// refuseOfMonitorQueue keeps clients from reading, writing and changing the monitor queue, as
// refuseLink and watch do at the AMQP endpoint: the relay has the proxy's own rights. Clients may
// read its description and receive its dead letters.
func (p *Proxy) refuseOfMonitorQueue(method string, q *rights.Request) error {
	var guarded bool
	switch {
	case p.cfg.MonitorQueue == "":
	case q.Call == rights.Administer: // deleting or changing any that there could be, or an address below it
		all := monitorqueue.Of(p.cfg.MonitorQueue, monitorqueue.Most).Names()
		guarded = method != http.MethodGet && method != http.MethodHead &&
			slices.ContainsFunc(all, func(name string) bool { return address.Below(q.Need.Path, name) })
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

// refuseForward keeps clients from forwarding messages to entities to which they may not send: to
// the monitor queue, and, with keys, to entities for which they have no token. The namespace
// cannot check that, since it sees the proxy's own token.
func (p *Proxy) refuseForward(r *http.Request, body []byte) error {
	if r.Method != http.MethodPut || len(body) == 0 {
		return nil
	}
	targets, err := atom.Forwards(bytes.NewReader(body))
	if err != nil {
		return rest.BadRequest("The description of the entity is refused: %s.", err)
	}
	for _, t := range targets {
		if p.isMonitorQueue(t.To.Entity()) {
			return rest.BadRequest("%s is the monitor queue, to which nothing is forwarded.", rest.Quoted(t.To.Entity()))
		}
		if len(p.cfg.Keys) == 0 {
			continue
		}
		token := cmp.Or(r.Header.Get(proofs[t.Element]), r.Header.Get(authorization))
		if err := p.demand(token, t.To.String(), sas.Send|sas.Manage); err != nil {
			return err
		}
	}
	return nil
}

// proofs lists the headers whose tokens must be good for the target of forwarded messages and
// dead letters.
var proofs = map[string]string{
	atom.ForwardTo: supplementaryAuthorization, atom.ForwardDeadLettersTo: deadLetterAuthorization,
}
