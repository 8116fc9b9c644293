// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// maxConns bounds the connections to one webhook; further events wait for one to come free.
const maxConns = 64

// WebhookConfig says where events are posted.
type WebhookConfig struct {
	Name    string        // "" = webhook; several need names of their own
	URL     string        // http or https
	Timeout time.Duration // of one request; 0 = 5 s
	Client  *http.Client  // nil: one of its own
}

// webhook posts each event as a structured CloudEvent, by the CloudEvents HTTP webhook
// specification: any 2xx takes it, 429 says when to come again.
type webhook struct {
	name    string
	url     string
	host    string
	timeout time.Duration
	client  *http.Client
}

// NewWebhook makes an Alerter that posts events to a URL.
func NewWebhook(cfg WebhookConfig) (Alerter, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		// The URL itself may hold a secret.
		return nil, errors.New("monitor: a webhook needs an http or https URL with a host")
	}
	a := &webhook{name: cmp.Or(cfg.Name, "webhook"), url: cfg.URL, host: u.Host, timeout: cfg.Timeout, client: cfg.Client}
	if a.timeout == 0 {
		a.timeout = 5 * time.Second
	}
	if a.client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = maxConns
		transport.MaxConnsPerHost = maxConns
		a.client = &http.Client{Transport: transport}
	}
	return a, nil
}

func (a *webhook) Name() string { return a.name }

func (a *webhook) Alert(ctx context.Context, e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return backoff.Permanent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(fmt.Errorf("monitor: webhook at %s: the request cannot be made", a.host))
	}
	req.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	resp, err := a.client.Do(req)
	if err != nil {
		// The text of a url.Error names the whole URL, which may hold a secret.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("monitor: webhook at %s: %w", a.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			return backoff.RetryAfter(seconds)
		}
	case resp.StatusCode/100 == 4:
		return backoff.Permanent(fmt.Errorf("monitor: webhook at %s answered %s", a.host, resp.Status))
	}
	return fmt.Errorf("monitor: webhook at %s answered %s", a.host, resp.Status)
}
