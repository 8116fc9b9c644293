// SPDX-License-Identifier: Apache-2.0

package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/httpclient"
)

// Path is where the admin port serves a [History].
const Path = "/notifications"

const (
	// fetchTimeout bounds one request to the admin port, and explainTimeout one whose answer an
	// explanation can do without.
	fetchTimeout   = 10 * time.Second
	explainTimeout = 3 * time.Second
	// maxAnswer bounds what is read of one answer, and maxReason of a refusal.
	maxAnswer = 16 << 20
	maxReason = 1 << 10
)

// A Fetched notification is a [Notification] of another process.
type Fetched struct {
	Event struct {
		ID   string          `json:"id"`
		Type string          `json:"type"`
		Data alert.EventData `json:"data"`
	} `json:"event"`
	TakenBy []Delivery `json:"takenBy"`
	Waiting []Delivery `json:"waiting"`
}

// Fetch asks the process with the admin port addr for the notifications of messages with that
// name, see [address.Names], and for the gaps of its history.
func Fetch(ctx context.Context, addr, name string) (fetched []Fetched, gaps []Gap, err error) {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	_, gaps, err = Ask(ctx, addr, Path, url.Values{nameParameter: {name}}, &fetched)
	return fetched, gaps, err
}

// A StatusError is an answer of another status than 200.
type StatusError struct {
	URL    string
	Code   int
	Reason string // the beginning of the answer
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.URL, e.Code, http.StatusText(e.Code))
}

// Ask asks the process with the admin port addr for what it serves as JSON, and for the gaps of its
// history.
func Ask(ctx context.Context, addr, path string, q url.Values, into any) (http.Header, []Gap, error) {
	// The port is on this machine: a proxy from the environment could not reach it.
	client := httpclient.New(&http.Transport{DisableKeepAlives: true}, fetchTimeout)
	target := "http://" + addr + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"?"+q.Encode(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the admin port: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("is Overdue running? %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		reason, err := io.ReadAll(io.LimitReader(resp.Body, maxReason))
		return resp.Header, nil, errors.Join(&StatusError{target, resp.StatusCode, strings.TrimSpace(string(reason))}, err)
	}
	gaps, err := ReadGaps(resp.Header)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into)
	}
	if err != nil {
		return resp.Header, gaps, fmt.Errorf("read the answer of %s: %w", target, err)
	}
	return resp.Header, gaps, nil
}
