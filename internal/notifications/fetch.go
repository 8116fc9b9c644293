// SPDX-License-Identifier: Apache-2.0

package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"overdue/alert"
	"overdue/internal/httpclient"
)

// Path is where the admin port serves a [History].
const Path = "/notifications"

const (
	// fetchTimeout bounds one request to the admin port.
	fetchTimeout = 3 * time.Second
	// maxAnswer bounds what is read of one answer.
	maxAnswer = 4 << 20
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
func Fetch(ctx context.Context, addr, name string) ([]Fetched, []Gap, error) {
	// The port is on this machine: a proxy from the environment could not reach it.
	client := httpclient.New(&http.Transport{DisableKeepAlives: true}, fetchTimeout)
	target := "http://" + addr + Path + "?" + url.Values{nameParameter: {name}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("notifications: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("notifications: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("notifications: http://%s%s answered %s", addr, Path, resp.Status)
	}
	var fetched []Fetched
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&fetched); err != nil {
		return nil, nil, fmt.Errorf("notifications: read the answer of http://%s%s: %w", addr, Path, err)
	}
	gaps, err := ReadGaps(resp.Header)
	if err != nil {
		return nil, nil, fmt.Errorf("notifications: read the gaps in the answer of http://%s%s: %w", addr, Path, err)
	}
	return fetched, gaps, nil
}
