// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/doctor"
	"overdue/internal/terminal"
)

// doctorCommand examines the namespace as a process with this configuration would see it.
func (p *program) doctorCommand() *cobra.Command {
	var o doctor.Options
	var x operator.ExaminationOptions
	var sendTest bool
	cmd := &cobra.Command{
		Use:   "doctor [queue or topic…]",
		Short: "Check configuration, rights and entities against the namespace, and say what to change",
		Long: "Connects as configured and checks everything that deadlines depend on: rights, the monitor queue, each\n" +
			"monitored queue and topic, clocks, sinks. Each finding comes with the command or the setting that fixes\n" +
			"it, and the worst come first. Without arguments the doctor checks monitor.entities, or all entities if none is listed.\n\n" +
			"It changes nothing without --fix, and never deletes anything. If a right for a check is missing, it says\n" +
			"so and goes on. Exit code 1 if there is an error (with --strict for warnings too, and for what could not\n" +
			"be checked), 2 for bad usage or configuration, 0 otherwise.",
		Example: "  overdue doctor --config overdue.yaml\n" +
			"  overdue doctor --role proxy orders      # may a sidecar with this configuration send to it?\n" +
			"  overdue doctor --fix                    # shows the changes, and asks\n" +
			"  overdue doctor --send-test              # sends a test event through every sink of alerts",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || isMonitorQueueSetting(path) })
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print only the report, as JSON")
	cmd.Flags().BoolVar(&o.Errors, "errors-only", false, "print no other findings than errors")
	cmd.Flags().BoolVar(&o.Strict, "strict", false, "also exit with 1 for warnings and for what could not be checked")
	cmd.Flags().BoolVar(&o.Fix, "fix", false, "create and change what the administration API can, after asking")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "with --fix: do not ask")
	cmd.Flags().BoolVar(&sendTest, "send-test", false, "send a test event through every sink of alerts")
	cmd.Flags().StringVar(&x.Role, "role", operator.Roles[0], "whose rights to check: "+strings.Join(operator.Roles, ", "))
	completes(cmd, "role", operator.Roles...)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if !slices.Contains(operator.Roles, x.Role) {
			return &config.Error{Err: fmt.Errorf("--role is %q; it must be one of %s", config.Clip(x.Role), strings.Join(operator.Roles, ", "))}
		}
		if err := o.Check(); err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if sendTest && len(c.Alerts) == 0 {
			return &config.Error{Err: errors.New("--send-test has no sink to send to: alerts lists none")}
		}
		x.Names = names
		o.In, o.Width, o.Color = cmd.InOrStdin(), terminal.Width(p.stdout), terminal.Colored(p.stdout, p.getenv)
		o.NamespaceVariable = config.SettingAt("namespace").Env()
		cfg, client, err := examination(c, x, sendTest)
		if err != nil {
			return err
		}
		defer client.Close(cmd.Context())
		o.Administration = client.Administration
		return doctor.Run(cmd.Context(), cfg, terminal.Raw(p.stdout), o)
	}
	cmd.AddCommand(p.doctorLagCommand())
	return cmd
}

// examination connects to what the doctor examines. The caller closes the client.
func examination(c *config.Config, x operator.ExaminationOptions, sendTest bool) (doctor.Config, *operator.Client, error) {
	open, examine := operator.Open, (*operator.Client).Examination
	if c.Embedded() {
		open, examine = operator.OpenEmbedded, (*operator.Client).ExaminationOfOthers
	}
	client, err := open(c)
	if err != nil {
		return doctor.Config{}, nil, err
	}
	for i := range c.Alerts {
		a := &c.Alerts[i]
		sink := doctor.Sink{Name: a.Name, Setting: a.Key}
		events, pager, err := app.NewSink(a, client.Links)
		switch {
		case err != nil:
			sink.Reach = func(context.Context) error { return err }
		case a.Email != nil || app.SinkAddress(a) != "": // the entity of another is a target, or it cannot be asked
			sink.Reach = app.AskSink(a, events, pager).OK
		}
		if sendTest && err == nil {
			sink.Test = func(ctx context.Context) error {
				return doctor.SendTest(ctx, client.Namespace.Host, events, pager)
			}
		}
		x.Sinks = append(x.Sinks, sink)
	}
	if text := c.Heartbeat.URL; text != "" {
		x.Heartbeat = app.SinkCheck("heartbeat", text).OK
	}
	return examine(client, x), client, nil
}
