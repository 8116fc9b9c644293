// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/doctor"
	"overdue/internal/terminal"
)

func (p *program) doctorLagCommand() *cobra.Command {
	var o doctor.LagOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Measure native against eager expiry in the namespace, on queues of its own",
		Long: "Creates three queues (overdue-lag-…), sends the same messages to two of them without a consumer, runs a\n" +
			"monitor for one of the two, and shows how long after their deadlines the messages reached the\n" +
			"dead-letter queues. It deletes the queues at the end; if that fails, they delete themselves after five\n" +
			"idle minutes. It needs the Manage right, and a few thousand broker operations.\n\n" +
			"It peeks at the dead-letter queues every 100 ms, which is the resolution of the figures. A peek is not a\n" +
			"receive, and makes the broker expire nothing.",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" })
	cmd.Flags().BoolVar(&asJSON, "json", false, "print only the result, as JSON")
	cmd.Flags().IntVar(&o.Messages, "messages", 20, "messages per queue, 1 to 200")
	durationVar(cmd.Flags(), &o.Spread, "over", 8*time.Second, "time from the first deadline to the last, 0s to 10m")
	durationVar(cmd.Flags(), &o.Wait, "wait", 30*time.Second, "how long after the last deadline to wait for the queue without a monitor, 0s to 30m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Check(); err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if c.Embedded() {
			return &config.Error{Err: errors.New("doctor lag measures in a namespace, and none is configured: set --namespace or " +
				config.SettingAt("namespace").Env() + "; `overdue demo` does the same on an embedded broker")}
		}
		client, err := operator.Open(c)
		if err != nil {
			return err
		}
		defer client.Close(cmd.Context())
		if !asJSON {
			o.Progress = func(line string) {
				_, _ = fmt.Fprintln(p.stdout, line) // if the reader is gone, the write of the result fails as well
			}
		}
		result, err := doctor.MeasureLag(cmd.Context(), doctor.LagConfig{
			Host: client.Namespace.Host, Links: client.Links, Admin: client.Admin, Administration: client.Administration,
		}, o)
		if err != nil {
			return err
		}
		if asJSON {
			err = escape.WriteJSON(p.stdout, result)
		} else {
			err = result.WriteText(terminal.Raw(p.stdout), terminal.Colored(p.stdout, p.getenv))
		}
		return errors.Join(err, result.Err())
	}
	return cmd
}
