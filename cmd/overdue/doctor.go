// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator/doctor"
	"overdue/scheduler"
)

// doctorCommand examines the namespace as the configured process would see it.
func (p *program) doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [queue or topic…]",
		Short: "Check configuration, rights and entity settings against the namespace, and say what to change",
		Long: "Connects as configured and checks what would keep deadlines from being noticed: rights, the monitor\n" +
			"queue, each monitored queue and topic, clocks, sinks. Each finding comes with the command or the setting\n" +
			"that cures it. Without arguments it looks at monitor.entities, or at all there is where nothing is listed.\n\n" +
			"Nothing is changed without --fix, and nothing is ever deleted. The rights that it lacks itself cost it\n" +
			"checks, which it names. Exit code 1 when there is an error (with --strict also for warnings and for what\n" +
			"could not be checked), 0 otherwise, 2 for bad usage or configuration.",
		Example: "  overdue doctor --config overdue.yaml\n" +
			"  overdue doctor --role proxy orders      # may a sidecar with this configuration send to it?\n" +
			"  overdue doctor --fix                    # shows what it would change, and asks\n" +
			"  overdue doctor --send-test              # a test event through every sink of alerts",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || path == "monitorQueue" })
	cmd.Flags().BoolVar(&o.json, "json", false, "print nothing but the report, as JSON")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 1 for warnings and for what could not be checked, too")
	cmd.Flags().BoolVar(&o.fix, "fix", false, "create and change what can be changed over the administration API, after asking")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "with --fix: do not ask")
	cmd.Flags().BoolVar(&o.sendTest, "send-test", false, "send a test event through every sink of alerts")
	cmd.Flags().StringVar(&o.role, "role", "run", "whose rights to check: run, proxy or monitor")
	completes(cmd, "role", "run", "proxy", "monitor")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.in = cmd.InOrStdin()
		if err := o.check(); err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return p.doctor(cmd.Context(), c, args, o)
	}
	cmd.AddCommand(p.doctorLagCommand())
	return cmd
}

type doctorOptions struct {
	json, strict, fix, yes, sendTest bool
	role                             string
	in                               io.Reader // who is asked
}

func (o *doctorOptions) check() error {
	switch {
	case o.role != "run" && o.role != "proxy" && o.role != "monitor":
		return fmt.Errorf("--role is %q; it must be one of run, proxy, monitor", config.Clip(o.role))
	case o.yes && !o.fix:
		return errors.New("--yes answers what --fix asks; give both")
	case o.fix && o.json && !o.yes:
		return errors.New("--json leaves no place for a question; give --yes with --fix, or leave --json out")
	}
	return nil
}

// doctorReport is the JSON form of the command's result.
type doctorReport struct {
	*doctor.Report
	Hint  string   `json:"hint,omitempty"`
	Fixed []string `json:"fixed,omitempty"`
}

func (p *program) doctor(ctx context.Context, c *config.Config, names []string, o doctorOptions) error {
	if c.Embedded() {
		return p.withoutNamespace(ctx, c, o)
	}
	patient, err := newPatient(c)
	if err != nil {
		return err
	}
	defer patient.close(ctx)
	cfg := patient.examination(names, o)
	result := doctorReport{Report: doctor.Examine(ctx, cfg)}
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted before the end")
	}
	if !o.json {
		if err := result.WriteText(raw(p.stdout), p.colour()); err != nil {
			return err
		}
	}
	if o.fix {
		if result.Fixed, err = p.fix(ctx, patient, result.Repairs(), o); err != nil {
			return err
		}
		if len(result.Fixed) > 0 {
			result.Report = doctor.Examine(ctx, cfg)
			if !o.json {
				if err := result.WriteText(raw(p.stdout), p.colour()); err != nil {
					return err
				}
			}
		}
	}
	if o.json {
		if err := escape.WriteJSON(p.stdout, result); err != nil {
			return err
		}
	}
	return o.verdict(result.Report)
}

// verdict is the error behind the exit code.
func (o *doctorOptions) verdict(r *doctor.Report) error {
	errs, warnings, unknown := r.Count(doctor.Error), r.Count(doctor.Warning), r.Count(doctor.Unknown)
	switch {
	case errs == 1:
		return errors.New("the doctor has found an error")
	case errs > 1:
		return fmt.Errorf("the doctor has found %d errors", errs)
	case o.strict && warnings+unknown > 0:
		return fmt.Errorf("the doctor has found %d warnings, and could not check %d things (--strict)", warnings, unknown)
	}
	return nil
}

// withoutNamespace examines what is configured beside the embedded broker, of which Overdue knows all there is: sinks, say.
func (p *program) withoutNamespace(ctx context.Context, c *config.Config, o doctorOptions) error {
	beside := *c
	beside.Namespace = config.ConnectionString(c.Broker.Listen, config.AnyKeyName, config.AnyKey)
	patient, err := newPatient(&beside)
	if err != nil {
		return err
	}
	defer patient.close(ctx)
	cfg := patient.examination(nil, o)
	if len(cfg.Others) == 0 && cfg.Redis == nil {
		return p.noPatient(o.json)
	}
	r := doctor.ExamineOthers(ctx, cfg)
	if ctx.Err() != nil {
		return errors.New("interrupted before the end")
	}
	if o.json {
		err = escape.WriteJSON(p.stdout, doctorReport{Report: r, Hint: noNamespaceHint()})
	} else {
		err = r.WriteText(raw(p.stdout), p.colour())
	}
	return errors.Join(err, o.verdict(r))
}

// noNamespaceHint says how to have one examined.
func noNamespaceHint() string {
	return "no namespace is configured: set --namespace, " + config.SettingAt("namespace").Env() + " or namespace in the file that --config names"
}

// noPatient says what would be examined, for whoever has no namespace yet.
func (p *program) noPatient(asJSON bool) error {
	hint := noNamespaceHint()
	if asJSON {
		return escape.WriteJSON(p.stdout, doctorReport{Report: &doctor.Report{Findings: []doctor.Finding{}}, Hint: hint})
	}
	_, err := fmt.Fprintf(p.stdout, `There is nothing to examine: %s.
With the embedded broker Overdue knows everything that the doctor would ask.

In a namespace the doctor checks
  - that it can be reached, its tier, and how far this machine's clock is from that of the broker
  - the monitor queue: there, without sessions, partitions and forwarding, with a long time to live and locks that last
  - each monitored queue and topic: rights to send and to listen, dead-lettering on expiry, deadlines against times to
    live and lock durations, sessions, duplicate detection, partitioning, forwarding, auto-delete, status
  - the sinks of alerts (--send-test sends each a test event)
  - Redis, where there is one: version, rights, TLS, memory

Point it at a namespace, or at a broker of this machine:
  overdue doctor --namespace contoso.servicebus.windows.net
  %s='Endpoint=sb://…' overdue doctor
  overdue doctor lag                    # native against eager expiry, measured there
  overdue demo                          # the same on an embedded broker
`, hint, config.SettingAt("namespace").Env())
	return err
}

// fix shows what it would change, asks, and does it.
func (p *program) fix(ctx context.Context, patient *patient, repairs []*doctor.Repair, o doctorOptions) (done []string, err error) {
	say := func(format string, args ...any) {
		if !o.json {
			fmt.Fprintf(p.stdout, format, args...) // who reads it may be gone; that is told at the end
		}
	}
	if len(repairs) == 0 {
		say("There is nothing that --fix can change.\n")
		return nil, nil
	}
	say("\n--fix would, in %s:\n", patient.ns.Host)
	for _, r := range repairs {
		say("  %s\n", r)
	}
	if !o.yes {
		say("Go ahead? [y/N] ")
		line, err := bufio.NewReader(io.LimitReader(o.in, 100)).ReadString('\n')
		if err != nil && line == "" {
			say("\n")
		}
		if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
			say("Nothing was changed.\n")
			return nil, nil
		}
	}
	client, err := patient.administration()
	if err != nil {
		return nil, err
	}
	for _, r := range repairs {
		changing, cancel := context.WithTimeout(ctx, doctorPatience)
		err := doctor.Apply(changing, client, r)
		cancel()
		if err != nil {
			return done, fmt.Errorf("not done: %w", err)
		}
		done = append(done, r.String())
		say("done: %s\n", r)
	}
	return done, nil
}

// doctorPatience bounds one change.
const doctorPatience = 30 * time.Second

// measureClock compares the broker's clock with that of this machine.
func (d *patient) measureClock(ctx context.Context) (ahead, uncertainty time.Duration, err error) {
	config := scheduler.Config{Client: d.client, MonitorQueue: d.cfg.MonitorQueue, Links: d.links}
	if d.cfg.CompanionsInRedis() {
		store, err := d.redis() // which is not asked
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = store.Close() }()
		config.Store = store.Companions()
	}
	s, err := scheduler.New(config)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	if err := s.MeasureClock(ctx); err != nil {
		return 0, 0, err
	}
	now := s.Now()
	return time.Until(now.Time), now.Uncertainty, nil
}

// colour reports whether what is printed may have colours.
func (p *program) colour() bool {
	return isTerminal(p.stdout) && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}
