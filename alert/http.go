// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
	"overdue/internal/httpclient"
	"overdue/internal/traceparent"
)

// maxConns bounds the connections to one sink, and so its requests under way.
const maxConns = 64

// Bounds of a response: how much is read, so that the connection can be reused, in bytes, and how
// much of it an error quotes, in characters.
const (
	maxAnswer = 64 << 10
	maxQuote  = 200
)

// maxRetryAfter bounds how long a server can ask to wait. It waits a second at least: 0 would be a
// request after the other.
const maxRetryAfter = time.Hour

// HTTP configures a sink behind a URL. Everything but the host may be a secret, so no log or error
// shows it.
type HTTP struct {
	URL     string        // http or https
	Timeout time.Duration // of one request; 0 = 30 s
	Client  *http.Client  // nil: a new one; redirects are never followed
	Roots   string        // certificates in PEM that the server is checked against; "" = those of the machine

	Headers            map[string]string // added to each request
	BearerToken        string            // "" = none
	Username, Password string            // of basic authentication; "" = none
	SigningSecrets     []string          // one, or two during a rotation; none = unsigned. See signer
}

// poster posts to one URL.
type poster struct {
	name    string
	sink    string // its kind, for errors
	url     string
	host    string
	timeout time.Duration
	client  *http.Client
	header  http.Header
	signer  signer
	secrets *strings.Replacer       // hides secrets in an answer
	slots   chan struct{}           // a token for each request under way
	ahead   atomic.Int64            // how much the server's clock is ahead of ours, as of its latest answer
	last    atomic.Pointer[outcome] // nil: it has had no alert
}

// newPoster makes the poster of a kind of sink, which is also its name if it has none.
func newPoster(sink, name string, cfg HTTP) (*poster, error) {
	u, err := httpclient.ParseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("alert: %s: %w", sink, err)
	}
	p := &poster{name: cmp.Or(name, sink), sink: sink, url: cfg.URL, host: u.Host, timeout: cfg.Timeout, client: cfg.Client, slots: make(chan struct{}, maxConns)}
	if p.header, err = cfg.header(); err == nil {
		p.signer, err = newSigner(cfg.SigningSecrets)
	}
	if bad := (*SettingError)(nil); errors.As(err, &bad) {
		bad.Key = sink + "." + bad.Key // the kind of a sink is its key
		return nil, bad
	}
	p.secrets = hiding(cfg.secretsOf(u, p.header))
	if p.timeout == 0 {
		p.timeout = 30 * time.Second
	}
	if p.client == nil {
		transport := httpclient.Transport()
		transport.MaxIdleConnsPerHost = maxConns
		transport.MaxConnsPerHost = maxConns
		if cfg.Roots != "" {
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM([]byte(cfg.Roots)) {
				return nil, fmt.Errorf("alert: %s: authorityFile has no certificate in PEM", sink)
			}
			transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
		}
		p.client = httpclient.New(transport, 0)
	} else {
		p.client = httpclient.New(p.client.Transport, p.client.Timeout)
	}
	return p, nil
}

// Name returns the name of the sink.
func (p *poster) Name() string { return p.name }

// attempt sends body as JSON, in which control characters are escaped. Any 2xx accepts it. Any other
// answer may say when to try again (RFC 9110, section 10.2.3); without that, 4xx but 408 and 429
// are permanent errors. A signed request has the id, which is the same each time that the same body
// is sent. trace is the traceparent of the request, "" = none.
func (p *poster) attempt(ctx context.Context, contentType, id, trace string, body any) error {
	b, err := json.Marshal(body)
	b = escape.JSON(b)
	if err != nil {
		return backoff.Permanent(fmt.Errorf("alert: %s: %w", p.sink, err))
	}
	// The timeout starts with the request: a request that waits for others must not fail for that.
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return fmt.Errorf("alert: %s at %s: %w", p.sink, p.host, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %v", p.timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(b))
	if err != nil {
		return backoff.Permanent(fmt.Errorf("alert: %s at %s: invalid request", p.sink, p.host))
	}
	req.Header = p.header.Clone()
	req.Header.Set("Content-Type", contentType)
	if trace = traceparent.Valid(trace); trace != "" {
		req.Header.Set(traceparent.Property, trace)
	}
	p.signer.sign(req.Header, id, time.Now(), b)
	resp, err := p.client.Do(req)
	if err != nil {
		// The text of a url.Error names the whole URL, which may hold a secret.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		if redirect := (*httpclient.RedirectError)(nil); errors.As(err, &redirect) {
			return fmt.Errorf("alert: %s: %w", p.sink, err) // err names the host
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("alert: %s at %s: %w", p.sink, p.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status decides; the text is extra
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		p.ahead.Store(int64(time.Until(date)))
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if wait, ok := p.retryAfter(resp.Header.Get("Retry-After")); ok {
		return fmt.Errorf("alert: %s at %s answered %s: %w", p.sink, p.host, p.quote(resp.Status), &backoff.RetryAfterError{Duration: wait})
	}
	said := strings.TrimSuffix(p.quote(resp.Status)+": "+p.quote(string(answer)), ": ")
	err = fmt.Errorf("alert: %s at %s answered %s", p.sink, p.host, said)
	if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout {
		return backoff.Permanent(err)
	}
	return err
}

// now returns the time by the clock of the server, as far as it is known, to a second.
func (p *poster) now() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }

// retryAfter returns how long a server asks to wait: seconds, or a date by its clock.
func (p *poster) retryAfter(header string) (wait time.Duration, ok bool) {
	if seconds, err := strconv.ParseFloat(header, 64); err == nil && seconds >= 0 {
		wait = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	} else if date, err := http.ParseTime(header); err == nil {
		wait = date.Sub(p.now()) + time.Second // both have whole seconds
	} else {
		return 0, false
	}
	return min(max(wait, time.Second), maxRetryAfter), true
}

// quote returns what an error shows of an answer: a server may repeat the request.
func (p *poster) quote(answer string) string {
	return cut(strings.Join(strings.Fields(p.secrets.Replace(strings.ToValidUTF8(answer, "�"))), " "), maxQuote)
}
