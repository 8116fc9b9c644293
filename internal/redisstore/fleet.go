// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"time"
)

const (
	notifyTime = 25 * time.Millisecond // bound of a question that a notification waits for
	// ClaimLife is longer than a notification takes whose sinks answer within 30 s. notifiedLife is
	// longer than the longest lock: a process that finds the event again within one knows that it was
	// notified.
	ClaimLife    = 45 * time.Second
	notifiedLife = 10 * time.Minute

	viewTime = time.Second // bound of a report, which nobody waits for
	viewLife = 7 * 24 * time.Hour
	// ReportEvery is how often a process reports; one that has not for three times as long is gone.
	ReportEvery = 5 * time.Second
	maxNames    = 1000
)

// Notified is which events the monitors of the fleet have notified.
type Notified struct {
	c     *circuit
	token string // of this process
}

// Notified returns the record of the fleet.
func (s *Store) Notified() *Notified {
	token := rand.Text()
	key := s.key("e", token)
	return &Notified{s.circuit("notified", notifyTime,
		func(ctx context.Context) error { _, err := claim(ctx, s.client, key, token, trialLife); return err },
		func(ctx context.Context) error { return settle(ctx, s.client, key, token, trialLife) },
		func(ctx context.Context) error { return settle(ctx, s.client, key, token, 0) },
	), token}
}

func (t *Notified) key(event string) string {
	sum := sha256.Sum256([]byte(event))
	return t.c.s.key("e", string(sum[:16]))
}

// Begin claims the notification of an event. notified: another process has sent it. Neither mine
// nor notified: another is about to. With an error nobody knows.
func (t *Notified) Begin(ctx context.Context, event string) (mine, notified bool, err error) {
	var state string
	err = t.c.do(ctx, func(ctx context.Context) error {
		state, err = claim(ctx, t.c.s.client, t.key(event), t.token, ClaimLife)
		return err
	})
	return state == claimMine, state == claimDone, err
}

// End records how a claimed notification ended.
func (t *Notified) End(ctx context.Context, event string, notified bool) error {
	var done time.Duration
	if notified {
		done = notifiedLife
	}
	return t.c.do(ctx, func(ctx context.Context) error {
		return settle(ctx, t.c.s.client, t.key(event), t.token, done)
	})
}

// View is what the processes of the fleet report.
type View struct {
	c       *circuit
	process string
}

// View is that of the fleet.
func (s *Store) View() *View {
	reports, counts := s.key("{view}", "trial", "reports"), s.key("{view}", "trial", "counts")
	return &View{s.circuit("view", viewTime,
		func(ctx context.Context) error { return put(ctx, s.client, reports, "x", "{}", trialLife) },
		func(ctx context.Context) error { _, err := fresh(ctx, s.client, reports, 0); return err },
		func(ctx context.Context) error {
			return countUp(ctx, s.client, counts, 1, trialLife, map[string]int64{"x": 1})
		},
		func(ctx context.Context) error { _, err := counted(ctx, s.client, counts); return err },
	), rand.Text()}
}

func (v *View) keys() (reports, counts string) {
	return v.c.s.key("{view}", "reports"), v.c.s.key("{view}", "missed")
}

// Report says how many deadlines of each entity have come and are not seen to, and how many were
// missed since the last time. It is due every ReportEvery.
func (v *View) Report(ctx context.Context, outstanding, missed map[string]int64) error {
	body, err := json.Marshal(outstanding)
	if err != nil {
		return err
	}
	reports, counts := v.keys()
	return v.c.do(ctx, func(ctx context.Context) error {
		if err := put(ctx, v.c.s.client, reports, v.process, string(body), viewLife); err != nil {
			return err
		}
		return countUp(ctx, v.c.s.client, counts, maxNames, viewLife, missed)
	})
}

// Totals is what the monitors of the fleet know together.
type Totals struct {
	Monitors    int              // that have reported lately
	Outstanding map[string]int64 // by entity: deadlines that have come and are not seen to yet
	Missed      map[string]int64 // by entity: since somebody began to count
}

// Read adds up what was reported.
func (v *View) Read(ctx context.Context) (Totals, error) {
	totals := Totals{Outstanding: map[string]int64{}, Missed: map[string]int64{}}
	reports, counts := v.keys()
	err := v.c.do(ctx, func(ctx context.Context) error {
		latest, err := fresh(ctx, v.c.s.client, reports, 3*ReportEvery)
		for _, body := range latest {
			var one map[string]int64
			if json.Unmarshal([]byte(body), &one) != nil {
				continue // somebody else wrote it
			}
			totals.Monitors++
			for name, n := range one {
				totals.Outstanding[name] += n
			}
		}
		if err != nil {
			return err
		}
		totals.Missed, err = counted(ctx, v.c.s.client, counts)
		return err
	})
	return totals, err
}
