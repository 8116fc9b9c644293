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

const (
	// heartbeatTimeout bounds one request.
	heartbeatTimeout = 10 * time.Second
	// maxBody bounds what is read of an answer.
	maxBody = 64 << 10
)

// Heartbeat requests a URL once per interval while well returns nil, until ctx ends. The service
// behind the URL notices when the requests stop, for whatever reason. The URL may be a secret, so
// no error and no log line contains it.
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
			log.Warn("heartbeat stopped", zap.Error(err))
		case err == nil && before != nil:
			log.Info("heartbeat resumed")
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
		return errors.New("heartbeat: the URL is invalid")
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // leaves out the URL
		}
		return fmt.Errorf("heartbeat: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody) // the connection can be reused only once the body is read
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("heartbeat: the service answered %s", resp.Status)
	}
	return nil
}
