// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
	"overdue/internal/httpclient"
)

// maxConns bounds the connections to one sink, and so its requests under way.
const maxConns = 64

// maxQuote is how much of a response an error quotes, in bytes.
const maxQuote = 200

// HTTP configures a sink behind a URL. The URL may hold a secret, so no log or error shows it.
type HTTP struct {
	URL     string        // http or https
	Timeout time.Duration // of one request; 0 = 5 s
	Client  *http.Client  // nil: a new one; redirects are never followed
}

// poster posts to one URL.
type poster struct {
	sink    string // its kind, for errors
	url     string
	host    string
	timeout time.Duration
	client  *http.Client
	slots   chan struct{} // a token for each request under way
}

func newPoster(sink string, cfg HTTP) (*poster, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("alert: %s needs an http or https URL with a host", sink)
	}
	p := &poster{sink: sink, url: cfg.URL, host: u.Host, timeout: cfg.Timeout, client: cfg.Client, slots: make(chan struct{}, maxConns)}
	if p.timeout == 0 {
		p.timeout = 5 * time.Second
	}
	if p.client == nil {
		transport := httpclient.Transport()
		transport.MaxIdleConnsPerHost = maxConns
		transport.MaxConnsPerHost = maxConns
		p.client = httpclient.New(transport, 0)
	} else {
		p.client = httpclient.New(p.client.Transport, p.client.Timeout)
	}
	return p, nil
}

// post sends body as JSON, in which control characters are escaped. Any 2xx accepts it. 429 and 503
// may say when to try again; other 4xx are permanent errors.
func (p *poster) post(ctx context.Context, contentType string, body any) error {
	b, err := json.Marshal(body)
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
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(escape.JSON(b)))
	if err != nil {
		return backoff.Permanent(fmt.Errorf("alert: %s at %s: invalid request", p.sink, p.host))
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := p.client.Do(req)
	if err != nil {
		// The text of a url.Error names the whole URL, which may hold a secret.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		if redirect := (*httpclient.RedirectError)(nil); errors.As(err, &redirect) {
			return fmt.Errorf("alert: %s: %w", p.sink, err) // err names the host
		}
		return fmt.Errorf("alert: %s at %s: %w", p.sink, p.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	quote, _ := io.ReadAll(io.LimitReader(resp.Body, maxQuote)) // the status decides; the text is extra
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)              // so that the connection can be reused
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			return backoff.RetryAfter(seconds)
		}
	}
	err = fmt.Errorf("alert: %s at %s answered %s: %s", p.sink, p.host, resp.Status, strings.Join(strings.Fields(string(quote)), " "))
	if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout {
		return backoff.Permanent(err)
	}
	return err
}
