// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/internal/terminal"
	"overdue/monitor/mute"
	"overdue/scheduler"
)

// MuteOptions say what to mute.
type MuteOptions struct {
	Place  dlq.Place
	For    time.Duration // 0 ends the mute
	By     string
	Reason string
}

// SetMute mutes a place, or ends its mute. It needs the rights to send to the monitor queue and to
// listen there.
func SetMute(ctx context.Context, s *Source, o MuteOptions) (set mute.Mute, err error) {
	if err := s.MustExist(ctx, o.Place); err != nil {
		return set, err
	}
	err = s.withMutes(ctx, func(sc *scheduler.Scheduler, r *mute.Record) error {
		if err := sc.MeasureClock(ctx); err != nil {
			return err
		}
		set, err = r.Set(ctx, mute.Mute{
			Entity: o.Place.String(),
			By:     o.By,
			Reason: o.Reason,
		}, o.For)
		if errors.Is(err, mute.ErrNotMuted) {
			return fmt.Errorf("%s is not muted", o.Place)
		}
		return err
	})
	return set, err
}

// Mutes are what is muted. The JSON form is the output of `overdue mute --json`.
type Mutes []mute.Mute

// ListMutes reads what is muted.
func ListMutes(ctx context.Context, s *Source) (all Mutes, err error) {
	err = s.withMutes(ctx, func(_ *scheduler.Scheduler, r *mute.Record) error {
		err := r.Look(ctx, 0)
		all = append(Mutes{}, r.InForce()...)
		return err
	})
	return all, err
}

// WriteText writes the list for people.
func (m Mutes) WriteText(w io.Writer, now time.Time, width int) error {
	if len(m) == 0 {
		_, err := fmt.Fprintln(w, "Nothing is muted.")
		return err
	}
	var b bytes.Buffer
	t := terminal.NewTable(width, "ENTITY:12", "UNTIL", "IN", "BY:8", "REASON:12")
	for i := range m {
		t.Add(m[i].Entity, m[i].Until.Format("2006-01-02 15:04:05Z"), until(m[i].Until, now), m[i].By, m[i].Reason)
	}
	_ = t.Flush(&b) // a buffer takes everything
	_, err := b.WriteTo(w)
	return err
}

// withMutes calls f with what reads and writes mutes.
func (s *Source) withMutes(ctx context.Context, f func(*scheduler.Scheduler, *mute.Record) error) error {
	cfg := scheduler.Config{Links: s.Links, MonitorQueue: s.MonitorQueue}
	muting := mute.Config{Links: s.Links, Queue: s.MonitorQueue}
	if s.CompanionsInRedis {
		store := s.Redis.Companions()
		cfg.Store, muting.Store = store, store
	}
	sc, err := scheduler.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = sc.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	muting.Scheduler = sc
	r := mute.New(muting)
	defer r.Close(context.WithoutCancel(ctx))
	err = f(sc, r)
	switch {
	case link.Condition(err) == link.ConditionNotFound:
		return noMonitorQueue(s.MonitorQueue)
	case link.Unauthorized(err):
		return fmt.Errorf("the rights Send and Listen on %s are needed: %s", s.MonitorQueue, failure.Reason(err))
	}
	return cmp.Or(failure.Unreachable(err), err)
}
