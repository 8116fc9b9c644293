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
	"overdue/internal/connect"
	"overdue/internal/plural"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// passes reports whether sends go through while the monitor queue cannot be written.
func (p *Process) passes() bool {
	return p.role.Proxy && p.cfg.OnMonitorDown == config.OnMonitorDownPass
}

// startJournal opens the journal and starts to write what it holds to the monitor queue. It returns nil when
// sends are to be refused: then a journal that is there is only emptied.
func (p *Process) startJournal(ns *connect.Namespace, s *scheduler.Scheduler, kept func(n int)) (*journal.Journal, error) {
	if !p.role.Proxy || p.cfg.Journal.Directory == "" {
		return nil, nil
	}
	host := ns.Host
	if p.cfg.Embedded() {
		host = "(embedded)" // wherever it listens
	}
	log := p.log.Named("journal")
	j, err := journal.Open(journal.Config{
		Scheduler: s, Directory: p.cfg.Journal.Directory, MaxSize: p.cfg.Journal.MaxSize, Namespace: host,
		MustExist: !p.passes(),
		Kept:      kept, Changed: journalLog(log),
	})
	switch {
	case !p.passes() && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.cfg.At("journal.directory"), err)
	}
	p.life.Started("journal", func(ctx context.Context) error {
		if n := j.Status().Companions; n > 0 {
			log.Warn("journal is closed with companions in it: the next start writes them to the monitor queue", zap.Int("companions", n))
		}
		return j.Close(ctx)
	})
	registerJournal(p.registry, j)
	st := j.Status()
	if st.Companions > 0 {
		log.Info("journal holds companions of an earlier run: they are written to the monitor queue",
			zap.Int("companions", st.Companions), zap.String("monitor_queue", p.cfg.MonitorQueue), zap.Bool("takes_more", p.passes()))
	}
	if st.Elsewhere > 0 {
		log.Warn("journal holds companions of another namespace: they stay in it",
			zap.Int("companions", st.Elsewhere), zap.String("namespace", host),
			zap.String("next", "start a proxy for their namespace with this journal.directory, or their deadlines go unwatched"))
	}
	p.life.Background("journal to monitor queue", j.Run)
	inUse := func(context.Context) error {
		if st := j.Status(); st.Companions > 0 || p.passes() && st.Refusing != nil {
			return errors.New(describeJournal(st))
		}
		return nil
	}
	p.admin.Ready = append(p.admin.Ready, adminport.Check{Name: "journal", OK: func(ctx context.Context) error {
		err := inUse(ctx)
		if st := j.Status(); err != nil && (st.Down == nil || st.Refusing == nil) {
			return adminport.Remark(err.Error()) // sends are accepted
		}
		return err
	}})
	p.admin.Outbound = append(p.admin.Outbound, adminport.Check{Name: "journal", OK: inUse})
	if !p.passes() {
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
func passing(up *upstream, j *journal.Journal, ok func(context.Context) error) func(context.Context) error {
	if j == nil {
		return ok
	}
	return func(ctx context.Context) error {
		err := ok(ctx)
		if err != nil && up.answers() && j.Status().Refusing == nil {
			return adminport.Remark(err.Error())
		}
		return err
	}
}
