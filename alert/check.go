// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"overdue/internal/pace"
)

// A checker is a sink that can be asked whether it would take an alert. Check sends none. Its error
// has neither the name of the sink nor a secret.
type checker interface {
	Check(ctx context.Context) error
}

var _ = []checker{(*poster)(nil), (*email)(nil), (*serviceBus)(nil)}

// An outcome is what became of the last alert for a sink.
type outcome struct {
	at    time.Time
	err   error     // nil: the sink took it
	since time.Time // the first alert in a row that the sink did not take
}

// post is attempt, and notes the outcome.
func (p *poster) post(ctx context.Context, contentType, id, trace string, body any) error {
	err := p.attempt(ctx, contentType, id, trace, body)
	isStopped := ctx.Err() != nil // the process ends, which says nothing of the sink
	if !isStopped {
		now := time.Now()
		o := &outcome{at: now, err: err, since: now}
		if was := p.last.Load(); was != nil && was.err != nil {
			o.since = was.since
		}
		p.last.Store(o)
	}
	return err
}

// Check asks with the methods that change nothing, and with the headers of an alert. An answer
// shows that a server is there that speaks HTTP, over TLS if the URL says so. Many servers refuse
// these methods, so a status counts against the sink only if it says that nobody takes requests
// there, or not ours. Only an alert shows whether a sink takes alerts: while it has not taken the
// last one, it fails.
func (p *poster) Check(ctx context.Context) error {
	if last := p.last.Load(); last != nil && pace.HasFailed(last.err, last.since) {
		return fmt.Errorf("it did not take the last alert, %v ago: %w", time.Since(last.at).Round(time.Second), last.err)
	}
	status, err := p.ask(ctx, http.MethodOptions)
	if err == nil && fails(status) {
		status, err = p.ask(ctx, http.MethodHead)
	}
	if err == nil && fails(status) {
		err = fmt.Errorf("it answers %d %s", status, http.StatusText(status))
	}
	return err
}

// fails reports whether a sink with that answer takes no alerts.
func fails(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired, http.StatusGone:
		return true
	case http.StatusNotImplemented: // the method
		return false
	}
	return status >= http.StatusInternalServerError
}

func (p *poster) ask(ctx context.Context, method string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url, nil)
	if err != nil {
		return 0, errors.New("its URL cannot be read") // the error would quote it
	}
	req.Header = p.header.Clone()
	resp, err := p.client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be used again
	_ = resp.Body.Close()                             // only read
	return resp.StatusCode, nil
}

// Check does everything that comes before a mail: it connects, begins TLS and signs in.
func (a *email) Check(ctx context.Context) error {
	session, err := a.client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return err
	}
	return a.client.CloseWithSMTPClient(session)
}

// Check opens a link to the entity, as a send does.
func (a *serviceBus) Check(ctx context.Context) error {
	sender, err := a.links.Sender(ctx, a.entity)
	if err == nil {
		sender.Close(ctx)
	}
	return err
}
