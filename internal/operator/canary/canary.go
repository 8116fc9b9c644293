// SPDX-License-Identifier: Apache-2.0

// Package canary lets Overdue watch itself: it misses a deadline on purpose, again and again, and looks whether that
// is noticed; and it tells an outside dead man's switch that all is well, as long as it is.
package canary

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"overdue/internal/servicebus/sdk"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	// within is the time to live of a canary: longer than a send should take.
	within = 2 * time.Second
	// firstLook is when after its deadline a canary is looked for, then ever later up to lastLook.
	firstLook = 50 * time.Millisecond
	lastLook  = 5 * time.Second
	// patience is how long a canary may be late before it counts as lost.
	patience = time.Minute
	// stale is how much older than one's own a dead canary is that whoever finds it buries: nobody looks for it any more.
	stale = 2*patience + time.Minute
	// page is how many dead letters a look reads.
	page = 100
)

// Config says where canaries fly. All but Log and Registerer are needed.
type Config struct {
	Client   *sdk.Client
	Queue    string        // a queue of its own, which dead-letters on expiry and has no consumers
	Interval time.Duration // between canaries
	// Send sends a message with that id and time to live the way of any work message: with its companion.
	Send       func(ctx context.Context, id string, ttl time.Duration) error
	Log        *zap.Logger           // nil: none
	Registerer prometheus.Registerer // nil: none
}

// Canary misses a deadline per interval.
type Canary struct {
	cfg     Config
	last    prometheus.Gauge
	lag     prometheus.Gauge
	results *prometheus.CounterVec

	mu   sync.Mutex
	seen time.Time // when the latest was found, by our clock; zero: none yet
	err  error     // why the latest was not
}

// New makes a Canary. Run lets it fly.
func New(cfg Config) (*Canary, error) {
	if cfg.Client == nil || cfg.Queue == "" || cfg.Interval <= 0 || cfg.Send == nil {
		return nil, errors.New("canary: a client, a queue, an interval and a way to send are needed")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	c := &Canary{
		cfg: cfg,
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_canary_last_success_timestamp_seconds",
			Help: "When a canary's missed deadline was last noticed, by the clock of this machine; 0 = not yet.",
		}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_canary_lag_seconds",
			Help: "How long after its deadline the latest canary was found among the dead letters, which is looked for ever later.",
		}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_canaries_total",
			Help: "Canaries by what became of them: noticed, lost, or not sent.",
		}, []string{"result"}),
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(c.last, c.lag, c.results)
	}
	return c, nil
}

// Run lets canaries fly until ctx ends.
func (c *Canary) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		c.note(ctx, c.fly(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// errNotSent marks a canary that did not leave.
var errNotSent = errors.New("it could not be sent")

// fly sends one canary and waits until it is found among the dead letters.
func (c *Canary) fly(ctx context.Context) error {
	id := "overdue-canary-" + random()
	sending, cancel := context.WithTimeout(ctx, patience)
	err := c.cfg.Send(sending, id, within)
	cancel()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	deadline := time.Now().Add(within) // the broker has stamped it before
	dead, err := c.cfg.Client.Current().NewReceiverForQueue(c.cfg.Queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return fmt.Errorf("receiver for the dead letters of %s: %w", c.cfg.Queue, err)
	}
	defer func() { _ = dead.Close(context.WithoutCancel(ctx)) }() // nothing is left to lose
	wait := firstLook
	var looking error
	for time.Since(deadline) < patience {
		select {
		case <-time.After(time.Until(deadline) + wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		found, err := c.find(ctx, dead, id)
		if looking = err; found != nil {
			c.lag.Set(time.Since(deadline).Seconds())
			c.bury(ctx, dead, found)
			return nil
		}
		wait = min(wait*2, time.Since(deadline)+lastLook)
	}
	return cmp.Or(looking, fmt.Errorf("its deadline was missed %v ago, and it is not among the dead letters", patience))
}

// find looks for id among the dead letters. It peeks, so that other processes find theirs.
func (c *Canary) find(ctx context.Context, dead *azservicebus.Receiver, id string) (*azservicebus.ReceivedMessage, error) {
	from := int64(0)
	for {
		ms, err := dead.PeekMessages(ctx, page, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		if err != nil || len(ms) == 0 {
			return nil, err
		}
		for _, m := range ms {
			if m.MessageID == id {
				return m, nil
			}
			from = *m.SequenceNumber + 1
		}
	}
}

// bury takes our own from the dead letters, and what has been left there. What another canary has in hand, or the SDK's link
// of it, is not to be had; it is buried with a later one.
func (c *Canary) bury(ctx context.Context, dead *azservicebus.Receiver, own *azservicebus.ReceivedMessage) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ms, err := dead.ReceiveMessages(ctx, page, nil)
	for _, m := range ms {
		// Both stamps are the broker's: our clock may be wrong.
		if m.MessageID == own.MessageID || m.EnqueuedTime != nil && own.EnqueuedTime != nil && own.EnqueuedTime.Sub(*m.EnqueuedTime) > stale {
			err = errors.Join(err, dead.CompleteMessage(ctx, m, nil))
		} else {
			err = errors.Join(err, dead.AbandonMessage(ctx, m, nil))
		}
	}
	if err != nil {
		c.cfg.Log.Debug("dead canaries not buried, a later one takes them along", zap.Error(err))
	}
}

// note remembers how a flight ended, and says so when that changes.
func (c *Canary) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	before := c.err
	c.err = err
	if err == nil {
		c.seen = time.Now()
		c.last.Set(float64(c.seen.UnixMilli()) / 1000)
	}
	c.mu.Unlock()
	log := c.cfg.Log.With(zap.String("queue", c.cfg.Queue))
	switch {
	case err == nil:
		c.results.WithLabelValues("noticed").Inc()
		if before != nil {
			log.Info("canary is well again")
		}
		return
	case errors.Is(err, errNotSent):
		c.results.WithLabelValues("not sent").Inc()
	default:
		c.results.WithLabelValues("lost").Inc()
	}
	if before == nil {
		log.Warn("canary is lost: missed deadlines may go unnoticed", zap.Error(err))
	}
}

// Check is nil when canaries come back, and says otherwise why they do not.
func (c *Canary) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.seen.IsZero():
		return errors.New("no canary has come back yet")
	case time.Since(c.seen) > 2*c.cfg.Interval+patience:
		return fmt.Errorf("no canary has come back for %v", time.Since(c.seen).Round(time.Second))
	}
	return nil
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program when the system has no randomness
	return hex.EncodeToString(b[:])
}
