// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

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
		Short: "Check configuration, rights and entities against the namespace",
		Long: "Connects as configured and checks everything that deadlines depend on: rights, the monitor queue, each\n" +
			"monitored queue and topic, clocks, sinks. Each finding comes with the command or the setting that fixes\n" +
			"it, and the worst come first. Without arguments the doctor checks monitor.entities, or all entities if none is listed.\n\n" +
			"It changes nothing without --fix, and never deletes anything. If a right for a check is missing, it says\n" +
			"so and goes on. Exit code 1 if there is an error (with --strict for warnings too, and for what could not\n" +
			"be checked), 2 for bad usage or configuration, 0 otherwise.",
		Example: "  overdue doctor --config overdue.yaml\n" +
			"  overdue doctor --role proxy orders   # may a sidecar send to it?\n" +
			"  overdue doctor --fix                 # shows the changes, and asks\n" +
			"  overdue doctor --send-test           # sends a test event through every sink",
	}
	cmd.AddCommand(p.doctorLagCommand(), p.planCommand(), p.verifyCommand())
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print only the report, as JSON")
	cmd.Flags().BoolVar(&o.Errors, "errors-only", false, "print no other findings than errors")
	cmd.Flags().BoolVar(&o.Strict, "strict", false, "also exit with 1 for warnings and for what could not be checked")
	cmd.Flags().BoolVar(&o.Fix, "fix", false, "create and change what the administration API can, after asking")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "with --fix: do not ask")
	cmd.Flags().BoolVar(&sendTest, "send-test", false, "send a test event through every sink of alerts")
	choiceVar(cmd, &x.Role, "role", operator.Roles[0], operator.Roles, "whose rights to check")
	check := func([]string) error { return o.Check() }
	return p.configured(cmd, settings("namespace", "monitorQueue", "monitorQueues"), check, func(ctx context.Context, c *config.Config, names []string) error {
		namespace := config.SettingAt("namespace").Env()
		switch {
		case sendTest && len(c.Alerts) == 0:
			return &config.Error{Err: errors.New("--send-test has no sink to send to: alerts lists none")}
		case o.Fix && c.Embedded():
			return &config.Error{Err: errors.New("--fix changes a namespace, and no namespace is configured: set --namespace or " + namespace)}
		}
		x.Names = names
		o.In, o.Width, o.Color = cmd.InOrStdin(), terminal.Width(p.stdout), terminal.Colored(p.stdout, p.getenv)
		o.NamespaceVariable = namespace
		cfg, client, err := examination(c, x, sendTest)
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		o.Administration = client.Administration
		return doctor.Run(ctx, cfg, terminal.Raw(p.stdout), o)
	})
}

// examination connects to what the doctor examines. The caller closes the client.
func examination(c *config.Config, x operator.ExaminationOptions, sendTest bool) (doctor.Config, *operator.Client, error) {
	client, err := operator.OpenAny(c)
	if err != nil {
		return doctor.Config{}, nil, err
	}
	for i := range c.Alerts {
		a := &c.Alerts[i]
		var reach, test func(context.Context) error
		events, pager, err := app.NewSink(a, client.Links)
		switch {
		case err != nil:
			reach = func(context.Context) error { return err }
		case a.Email != nil || app.SinkAddress(a) != "": // the entity of another is a target, or it cannot be asked
			reach = app.AskSink(a, events, pager).OK
		}
		if sendTest && err == nil {
			test = func(ctx context.Context) error { return doctor.SendTest(ctx, client.Namespace.Host, events, pager) }
		}
		x.Others = append(x.Others, doctor.SinkChecks(a.Name, a.Key, reach, test)...)
	}
	if text := c.Heartbeat.URL; text != "" {
		x.Others = append(x.Others, doctor.HeartbeatCheck(app.SinkCheck("heartbeat", text).OK))
	}
	if c.Embedded() {
		return client.ExaminationOfOthers(x), client, nil
	}
	return client.Examination(x), client, nil
}

func (p *program) doctorLagCommand() *cobra.Command {
	var o doctor.LagOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Measure native against eager expiry, on queues of its own",
		Long: "Creates three queues (overdue-lag-…), sends the same messages to two of them without a consumer, runs a\n" +
			"monitor for one of the two, and shows how long after their deadlines the messages reached the\n" +
			"dead-letter queues. It deletes the queues at the end; if that fails, they delete themselves after five\n" +
			"idle minutes. It needs the Manage right, and a few thousand broker operations.\n\n" +
			"It peeks at the dead-letter queues every 100 ms, which is the resolution of the figures. A peek is not a\n" +
			"receive, and makes the broker expire nothing.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print only the result, as JSON")
	numberVar(cmd.Flags(), &o.Messages, "messages", 20, 1, 200, "messages per queue")
	durationVar(cmd.Flags(), &o.Spread, "over", 8*time.Second, 0, 10*time.Minute, "time from the first deadline to the last, 0s to 10m")
	durationVar(cmd.Flags(), &o.Wait, "wait", 30*time.Second, 0, 30*time.Minute,
		"how long after the last deadline to wait for the queue without a monitor, 0s to 30m")
	return p.configured(cmd, settings("namespace"), nothingToCheck, func(ctx context.Context, c *config.Config, _ []string) error {
		if c.Embedded() {
			return &config.Error{Err: errors.New("doctor lag measures in a namespace, and none is configured: set --namespace or " +
				config.SettingAt("namespace").Env() + "; `overdue demo` does the same on an embedded broker")}
		}
		client, err := operator.Open(c)
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		if !asJSON {
			o.Progress = func(line string) {
				_, _ = fmt.Fprintln(p.stdout, line) // if the reader is gone, the write of the result fails as well
			}
		}
		result, err := doctor.MeasureLag(ctx, doctor.LagConfig{
			Host:           client.Namespace.Host,
			Links:          client.Links,
			Admin:          client.Admin,
			Administration: client.Administration,
		}, o)
		if err != nil {
			return err
		}
		err = p.print(asJSON, result, func(w io.Writer, _ int) error {
			return result.WriteText(terminal.Raw(w), terminal.Colored(w, p.getenv))
		})
		return errors.Join(err, result.Err())
	})
}
