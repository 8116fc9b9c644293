// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"overdue/internal/adminport"
	"overdue/internal/version"
	"overdue/internal/web"
)

// startDashboard makes the dashboard of the admin port. Everything that it shows has to be there.
func (p *Process) startDashboard() {
	s := web.Source{
		Role: p.role.Name, Version: version.String(), Metrics: p.registry, Canary: p.cfg.Canary.Queue, Checks: p.checks,
		State:    func() string { return string(p.life.State()) },
		Settings: func() any { return cmp.Or(p.admin.Current.Load(), p.cfg).Redacted() },
	}
	if h := p.admin.Notified.Load(); h != nil {
		s.Missed = h.Find
	}
	d := web.New(s)
	p.admin.Dashboard = d
	p.life.Background("dashboard", func(ctx context.Context) error {
		d.Run(ctx)
		return nil
	})
}

// checks makes the checks of /readyz and /healthz/outbound. They run at once, so that a sink that
// does not answer takes no time from the others.
func (p *Process) checks(ctx context.Context) []web.Check {
	all := slices.Concat(p.admin.Ready, p.admin.Outbound)
	if sinks := p.admin.Sinks.Load(); sinks != nil {
		all = append(all, *sinks...)
	}
	results := make([]web.Check, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			results[i].Name = c.Name
			if err := c.OK(ctx); err != nil {
				said := adminport.Remark("")
				results[i].Failed, results[i].Message = !errors.As(err, &said), err.Error()
			}
		})
	}
	wg.Wait()
	return results
}
