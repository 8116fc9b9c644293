// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"overdue/internal/httpclient"
)

// heartbeatTimeout bounds one request.
const heartbeatTimeout = 10 * time.Second

// Heartbeat asks for a URL every interval, as long as well says that all is well: a dead man's switch behind it
// notices when that ends, for whatever reason. It returns when ctx ends. The URL may be a secret.
func Heartbeat(ctx context.Context, rawURL string, interval time.Duration, well func(context.Context) error, log *zap.Logger) error {
	client := httpclient.New(nil, heartbeatTimeout)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var before error
	for {
		err := well(ctx)
		if err == nil {
			err = beat(ctx, client, rawURL)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && before == nil:
			log.Warn("no heartbeat", zap.Error(err))
		case err == nil && before != nil:
			log.Info("heartbeat again")
		}
		before = err
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func beat(ctx context.Context, client *http.Client, rawURL string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return errors.New("the URL of the heartbeat cannot be used")
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return fmt.Errorf("heartbeat: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("heartbeat: answered %s", resp.Status)
	}
	return nil
}
