// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/plural"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// passes reports whether sends go through while the monitor queue cannot be written.
func (e *environment) passes() bool {
	return e.role.Proxy && e.cfg.OnMonitorDown == config.OnMonitorDownPass
}

// startJournal opens the journal and starts to write what it holds to the monitor queue. It returns nil when
// sends are to be refused: then a journal that is there is only emptied.
func startJournal(e *environment, host string, s *scheduler.Scheduler, kept func(n int)) (*journal.Journal, error) {
	if !e.role.Proxy || e.cfg.Journal.Directory == "" {
		return nil, nil
	}
	if e.cfg.Embedded() {
		host = "(embedded)" // wherever it listens
	}
	log := e.log.Named("journal")
	j, err := journal.Open(journal.Config{
		Scheduler: s, Directory: e.cfg.Journal.Directory, MaxSize: e.cfg.Journal.MaxSize, Namespace: host,
		MustExist: !e.passes(),
		Kept:      kept, Changed: journalLog(log),
	})
	switch {
	case !e.passes() && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", e.cfg.At("journal.directory"), err)
	}
	e.life.Started("journal", func(ctx context.Context) error {
		if n := j.Status().Companions; n > 0 {
			log.Warn("journal is closed with companions in it: the next start writes them to the monitor queue", zap.Int("companions", n))
		}
		return j.Close(ctx)
	})
	registerJournal(e.registry, j)
	st := j.Status()
	if st.Companions > 0 {
		log.Info("journal holds companions of an earlier run: they are written to the monitor queue",
			zap.Int("companions", st.Companions), zap.String("monitor_queue", e.cfg.MonitorQueue), zap.Bool("takes_more", e.passes()))
	}
	if st.Elsewhere > 0 {
		log.Warn("journal holds companions of another namespace: they stay in it",
			zap.Int("companions", st.Elsewhere), zap.String("namespace", host),
			zap.String("next", "start a proxy for their namespace with this journal.directory, or their deadlines go unwatched"))
	}
	e.life.Background("journal to monitor queue", j.Run)
	inUse := func(context.Context) error {
		if st := j.Status(); st.Companions > 0 || e.passes() && st.Refusing != nil {
			return errors.New(describeJournal(st))
		}
		return nil
	}
	e.addReady("journal", func(ctx context.Context) error {
		err := inUse(ctx)
		switch st := j.Status(); {
		case err == nil:
			return nil
		case st.Down == nil || st.Refusing == nil:
			return adminport.Remark(err.Error()) // sends are accepted
		}
		return &adminport.Failure{Reason: adminport.JournalFull, Err: err}
	})
	e.addOutbound("journal", inUse)
	if !e.passes() {
		return nil, nil
	}
	return j, nil
}

// describeJournal is what a probe says of a journal that is in use.
func describeJournal(st journal.Status) string {
	text := plural.Of(st.Companions, "companion waits", "companions wait") + " for the monitor queue"
	if st.Down != nil {
		text += fmt.Sprintf(", which is down: %s", plainly(st.Down))
	}
	switch {
	case st.Refusing != nil && st.Down != nil:
		text += fmt.Sprintf("; sends are refused: %s", plainly(st.Refusing))
	case st.Refusing != nil:
		text += fmt.Sprintf("; the journal takes no others: %s", plainly(st.Refusing))
	}
	return text
}

// journalLog logs what becomes of the journal, once for each change.
func journalLog(log *zap.Logger) func(event string, err error, st journal.Status) {
	return func(event string, err error, st journal.Status) {
		fields := []zap.Field{zap.Int("companions", st.Companions), zap.Int64("bytes", st.Bytes)}
		if err != nil {
			log.Warn(event, append(fields, zap.String("error", plainly(err)))...)
			return
		}
		log.Info(event, fields...)
	}
}

// registerJournal shows what the journal holds.
func registerJournal(r prometheus.Registerer, j *journal.Journal) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "overdue_journal_companions", Help: "Companions in the journal, which wait for the monitor queue.",
	}, func() float64 { return float64(j.Status().Companions) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "overdue_journal_bytes", Help: "Size of the companions in the journal; journal.maxSize bounds it.",
		}, func() float64 { return float64(j.Status().Bytes) }))
}

// passing is a readiness check of a process that may go on without its monitor queue: a failure is
// only logged while sends go through all the same.
func (c *companions) passing(ok func(context.Context) error) func(context.Context) error {
	if c.journal == nil {
		return ok
	}
	return func(ctx context.Context) error {
		err := ok(ctx)
		if err != nil && c.upstream.answers() && c.journal.Status().Refusing == nil {
			return adminport.Remark(err.Error())
		}
		return err
	}
}
