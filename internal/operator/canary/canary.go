// SPDX-License-Identifier: Apache-2.0

// Package canary lets Overdue test itself. A [Canary] sends messages that miss their deadlines on
// purpose, and checks that they are dead-lettered. [Heartbeat] calls a URL of an outside service
// while all is well, so that the service can raise the alarm when the calls stop.
package canary

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/httpclient"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/link"
)

const (
	// ttl is the time to live of a canary. A send must not take longer.
	ttl = 2 * time.Second
	// A canary is first looked for firstCheck after its deadline, then at growing intervals of up
	// to maxInterval.
	firstCheck  = 50 * time.Millisecond
	maxInterval = 5 * time.Second
	// timeout is how late a canary may be before it counts as lost. It also bounds each send.
	timeout = time.Minute
	// staleAfter is the difference in age after which a canary removes the dead letter of another:
	// nobody searches for that any more.
	staleAfter = 2*timeout + time.Minute
	// maxRemoved bounds the dead letters that a canary removes besides its own.
	maxRemoved = 100
)

// Values of the label result.
const (
	resultNoticed = "noticed"
	resultLost    = "lost"
	resultNotSent = "not sent"
)

// Config holds the settings of a Canary. All but Log and Registerer are required.
type Config struct {
	Links    *link.Namespace
	Queue    string        // a queue of its own, which dead-letters on expiration and has no consumers
	Interval time.Duration // between canaries
	// Send sends a message as any work message is sent, with its companion.
	Send       func(ctx context.Context, id string, ttl time.Duration) error
	Log        *zap.Logger           // nil: none
	Registerer prometheus.Registerer // nil: none
}

// A Canary misses one deadline in each interval.
type Canary struct {
	cfg     Config
	last    prometheus.Gauge
	lag     prometheus.Gauge
	results *prometheus.CounterVec

	mu      sync.Mutex
	seen    time.Time // when the latest was found, by our clock; zero: none yet
	missing time.Time // when the first one was sent that was not found since; zero: none is missing
	err     error     // why the latest was not found
}

// New makes a Canary. [Canary.Run] sends the messages.
func New(cfg Config) (*Canary, error) {
	if cfg.Links == nil || cfg.Queue == "" || cfg.Interval <= 0 || cfg.Send == nil {
		return nil, errors.New("canary: Links, Queue, Interval and Send are required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	c := &Canary{
		cfg: cfg,
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_canary_last_success_timestamp_seconds",
			Help: "When the missed deadline of a canary was last noticed, by the clock of this machine; 0 = not yet.",
		}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_canary_lag_seconds",
			Help: "How long after its deadline the latest canary was found among the dead letters. The resolution gets coarser with the lag.",
		}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_canaries_total",
			Help: "Canaries by result: noticed, lost, or not sent.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultNoticed, resultLost, resultNotSent} {
		c.results.WithLabelValues(result)
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(c.last, c.lag, c.results, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "overdue_canary_missing_seconds",
			Help: "How long ago the first canary was sent that has not been noticed since, on one clock; 0 while none is missing. Each is missing for some two seconds.",
		}, func() float64 { return c.missingFor().Seconds() }))
	}
	return c, nil
}

// Run sends canaries, one after the other, until ctx ends.
func (c *Canary) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		c.mu.Lock()
		if c.missing.IsZero() {
			c.missing = time.Now()
		}
		c.mu.Unlock()
		c.record(ctx, c.sendAndFind(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

var errNotSent = errors.New("the canary could not be sent")

// sendAndFind sends one canary and waits until it finds it among the dead letters.
func (c *Canary) sendAndFind(ctx context.Context) error {
	id := "overdue-canary-" + strings.ToLower(rand.Text())
	sending, cancel := context.WithTimeout(ctx, timeout)
	err := c.cfg.Send(sending, id, ttl)
	cancel()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	deadline := time.Now().Add(ttl) // the broker stamped it earlier, so the true deadline comes first
	wait := firstCheck
	var lastErr error
	for time.Since(deadline) < timeout {
		select {
		case <-time.After(time.Until(deadline) + wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		found, err := c.find(ctx, id)
		if lastErr = err; len(found) > 0 {
			c.lag.Set(time.Since(deadline).Seconds())
			c.remove(ctx, found)
			return nil
		}
		wait = min(wait*2, time.Since(deadline)+maxInterval)
	}
	return cmp.Or(lastErr, fmt.Errorf("the canary missed its deadline %v ago, and is not among the dead letters of %s", timeout, c.cfg.Queue))
}

// find searches the dead letters for id. If it is there, it returns its number, and those of stale
// canaries. It peeks, so that other processes find theirs.
func (c *Canary) find(ctx context.Context, id string) (found map[int64]bool, err error) {
	oldest := map[int64]time.Time{} // when they were enqueued
	err = dlq.Walk(ctx, c.cfg.Links, dlq.Place{Entity: c.cfg.Queue}, 0, func(l *dlq.Letter) bool {
		if l.MessageID != id {
			if len(oldest) < maxRemoved {
				oldest[l.Number] = l.EnqueuedTime
			}
			return true
		}
		found = map[int64]bool{l.Number: true}
		for number, at := range oldest {
			// Compare two stamps of the broker, because our clock may be wrong.
			if l.EnqueuedTime.Sub(at) > staleAfter {
				found[number] = true
			}
		}
		return false
	})
	return found, err
}

// remove takes canaries off the dead-letter queue. Those that another process has locked are left:
// a later canary removes them as stale ones.
func (c *Canary) remove(ctx context.Context, found map[int64]bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _, err := dlq.Purge(ctx, c.cfg.Links, dlq.Place{Entity: c.cfg.Queue}, found, dlq.Hold(0), 0, nil)
	if err != nil {
		c.cfg.Log.Debug("dead canaries not removed; a later canary removes them", zap.Error(err))
	}
}

// record keeps the result of one canary, and logs when the result changes.
func (c *Canary) record(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	before := c.err
	c.err = err
	if err == nil {
		c.seen, c.missing = time.Now(), time.Time{}
		c.last.Set(float64(c.seen.UnixMilli()) / 1000)
	}
	c.mu.Unlock()
	log := c.cfg.Log.With(zap.String("work_queue", c.cfg.Queue))
	switch {
	case err == nil:
		c.results.WithLabelValues(resultNoticed).Inc()
		if before != nil {
			log.Info("canary noticed again")
		}
		return
	case errors.Is(err, errNotSent):
		c.results.WithLabelValues(resultNotSent).Inc()
	default:
		c.results.WithLabelValues(resultLost).Inc()
	}
	if before == nil {
		log.Warn("canary lost: missed deadlines may go unnoticed", zap.Error(err))
	}
}

// missingFor is for how long canaries have been missing.
func (c *Canary) missingFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing.IsZero() {
		return 0
	}
	return time.Since(c.missing)
}

// Check returns nil while canaries are noticed, and otherwise why they are not.
func (c *Canary) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.seen.IsZero():
		return errors.New("no canary has been noticed yet")
	case time.Since(c.seen) > 2*c.cfg.Interval+timeout:
		return fmt.Errorf("no canary has been noticed for %v", time.Since(c.seen).Round(time.Second))
	}
	return nil
}

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
