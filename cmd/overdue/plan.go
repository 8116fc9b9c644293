// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/plan"
)

func (p *program) planCommand() *cobra.Command {
	var l plan.Load
	var price float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Estimate what a load costs: operations, processor, memory",
		Long: "Computes what Overdue needs for a load beyond what the app does anyway, which share of the limits of the\n" +
			"tier that is, and at which rate it stops. Nothing is connected to, and nothing is measured: the figures come\n" +
			"from `overdue bench`, and are on the high side. Exit code 1 if the load is over a limit of the tier, 2 for\n" +
			"bad usage, 0 otherwise.",
		Example: "  overdue doctor plan --rate 2000/s --deadline 30s --missed 1% --queues 12\n" +
			"  overdue doctor plan --rate 5M/day --deadline 1h --price-per-million 0.80",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	checkedVar(f, &l.Rate, "rate", "", "rate", "messages on all queues together, as 2000/s, 90k/min, 5M/day", parseRate)
	durationVar(f, &l.Deadline, "deadline", 0, time.Nanosecond, dlq.Longest, "deadline of each message")
	checkedVar(f, &l.Missed, "missed", "1%", "share", "share of messages that miss it", parseShare)
	f.IntVar(&l.Queues, "queues", 1, "queues that the messages are spread over")
	f.IntVar(&l.Senders, "senders", 1, "proxies that send to each queue; slots are counted by proxy and queue")
	f.IntVar(&l.MonitorQueues, "monitor-queues", 1, "monitor queues, as in the setting monitorQueues")
	choiceVar(cmd, &l.Tier, "tier", plan.Standard, []string{plan.Basic, plan.Standard, plan.Premium}, "tier of the namespace")
	choiceVar(cmd, &l.Companions, "companions", plan.Auto, []string{plan.Auto, plan.Each, plan.Slot}, "companions that are written")
	checkedVar(f, &price, "price-per-million", "", "float", "price of a million operations, to compute a sum", within(parseFloat, 0, 100_000))
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		planned, err := plan.Of(l)
		if err != nil {
			return &config.Error{Err: err}
		}
		err = p.print(asJSON, planned, func(w io.Writer, width int) error { return planned.WriteText(w, width, price) })
		return errors.Join(err, planned.Err())
	}
	return cmd
}

// parseRate reads messages a second.
func parseRate(text string) (float64, error) {
	number, per, ok := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "min": 60, "h": 3600, "day": 86400, "d": 86400}[per]
	factor := 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if rest, has := strings.CutSuffix(number, suffix); has {
			number, factor = rest, f
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || ok && per == "" {
		return 0, fmt.Errorf("%q is not a rate; write one like 2000/s, 90k/min or 5M/day", config.Clip(text))
	}
	return n * factor / seconds, nil
}

// parseShare reads a share, as 1% or 0.01.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a share; write one like 1%% or 0.01", config.Clip(text))
	}
	if percent {
		n /= 100
	}
	return n, nil
}
