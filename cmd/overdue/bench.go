// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/bench"
	"overdue/internal/config"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// benchCommand makes all measurements in a short form; each in full is a command below it.
func (p *program) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Overdue on the embedded broker, and compare with its targets",
		Long: "Makes all measurements one after the other in a short form, which takes about four minutes, and\n" +
			"sets beside each its target. Each in full is a command of its own.\n" +
			"Everything that is measured is a process of its own on this machine; clients reach it over TCP.\n" +
			"Ratios are of rounds that take turns, so what else the machine does hits both sides.\n" +
			"Exit code 1 when a message was lost, early or had two notifications; with --strict also when a\n" +
			"target was missed.",
	}
	var scale float64
	var directory string
	checkedVar(cmd.Flags(), &scale, "scale", "1", "float",
		"how much is measured, 0.001 to 10: below 1 it only shows that all of it works", within(parseFloat, 0.001, 10))
	directoryVar(cmd.Flags(), &directory)
	p.measuring(cmd, func() (bench.Plan, error) { return bench.Short(scale, directory), nil })
	cmd.AddCommand(benchStartCommand(p), benchMemoryCommand(p), benchSendCommand(p),
		benchBrokerCommand(p), benchLatencyCommand(p),
		benchCostCommand(p), benchExpireCommand(p), benchCheckCommand(p), benchSettleCommand(p),
		&cobra.Command{Use: "spin", Hidden: true, Args: cobra.NoArgs,
			Short: "Keep a processor busy until standard input ends",
			RunE:  func(*cobra.Command, []string) error { return bench.Spin(os.Stdin) }})
	return cmd
}

// measuring makes a command of a measurement: it prints the result on stdout, as a table or as
// JSON, and fails when a promise was broken. plan reads the flags.
func (p *program) measuring(cmd *cobra.Command, plan func() (bench.Plan, error)) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print the result as JSON")
	strict := cmd.Flags().Bool("strict", false, "also exit with 1 when a target was missed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		measurement, err := plan()
		if err != nil {
			return &config.Error{Err: err}
		}
		binary, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program's file: %w", err)
		}
		line := terminal.NewProgress(p.stderr, p.getenv)
		measured := &bench.Program{Binary: binary, Version: version.String(), HeapHeadroom: app.HeapHeadroom}
		r, err := measurement.Measure(cmd.Context(), measured, line.Say)
		line.End()
		err = benchFailure(cmd.Context(), err)
		if r == nil {
			return err
		}
		if *asJSON {
			err = errors.Join(err, bench.WriteJSON(p.stdout, r))
		} else {
			err = errors.Join(err, r.WriteTable(p.stdout))
		}
		err = errors.Join(err, r.Verdict())
		if *strict {
			err = errors.Join(err, bench.MissedTargets(r.Figures()))
		}
		return err
	}
	return cmd
}

// benchFailure is why a measurement failed. An interrupt is the reason then, whatever the
// processes had to say that were measured.
func benchFailure(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted before the end")
	}
	return err
}

func benchStartCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Measure how long it takes from the start until everything is ready",
		Long: "Starts overdue run with its embedded broker, again and again, and measures the time until /readyz\n" +
			"says yes: the broker serves, the monitor is attached to it, apps can connect.",
	}
	plan := &bench.Start{}
	numberVar(cmd.Flags(), &plan.Starts, "starts", 11, 1, 1000, "how often it is started")
	return p.measuring(cmd, func() (bench.Plan, error) { return plan, nil })
}

func benchMemoryCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure the memory of a sidecar, idle and with deadlines",
		Long: "Starts overdue broker, overdue proxy and overdue monitor, each a process of its own, and measures the\n" +
			"resident memory of the latter two: idle, and after so many messages were sent over AMQP whose\n" +
			"deadlines are an hour away.",
	}
	plan := &bench.Memory{}
	f := cmd.Flags()
	listVar(f, &plan.Outstanding, "outstanding", "50000,100000",
		"how many deadlines are outstanding, one number after the other, each greater than the one before",
		within(parseNumber, 1, 1_000_000))
	companionsVar(cmd, &plan.Companions, "each")
	durationVar(f, &plan.Pause, "pause", 5*time.Second, 0, time.Minute,
		"how long nothing happens before each sample")
	return p.measuring(cmd, func() (bench.Plan, error) {
		if !slices.IsSorted(plan.Outstanding) {
			return nil, fmt.Errorf("--outstanding: %s has to go up", cmd.Flag("outstanding").Value)
		}
		return plan, nil
	})
}

func benchSendCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Measure sends through the sidecar, HAProxy, and straight",
		Long: "The same clients send straight to overdue broker, through HAProxy in TCP mode where that is\n" +
			"installed, through overdue proxy to a queue that is not monitored, and through it to one that is,\n" +
			"with companions of either kind. Each round has a broker and sidecars of its own, and the ways take\n" +
			"turns in it, five times each; ratios are of one round, and the median of the rounds counts.\n" +
			"Clients: batches (the Go SDK, 16 senders on one connection, 100 messages at a time), single (the same,\n" +
			"one message at a time), one (one sender, one message at a time), spread (16 senders on 16\n" +
			"connections), rest (16 HTTP clients).",
	}
	plan := &bench.Send{}
	f := cmd.Flags()
	names := bench.ClientKinds()
	listVar(f, &plan.Clients, "clients", strings.Join(names, ","), "the clients to measure with", oneOf(names))
	payloadVar(f, &plan.Payload)
	roundsVar(f, &plan.Rounds, &plan.Span, "way")
	return p.measuring(cmd, func() (bench.Plan, error) { return plan, nil })
}

func benchBrokerCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Measure sends to a broker on disk, and to one in memory",
		Long: "Clients send to two overdue brokers in turns, five times each in a round. One keeps its queues in memory,\n" +
			"the other in a directory, and acknowledges a send once it is on disk. Each round has brokers and a\n" +
			"directory of its own; ratios are of one round, and the median of the rounds counts.\n" +
			"Clients: one-batches (the Go SDK, one sender, 100 messages at a time), single (16 senders on one\n" +
			"connection, one message at a time).",
	}
	plan := &bench.Broker{}
	f := cmd.Flags()
	payloadVar(f, &plan.Payload)
	directoryVar(f, &plan.Directory)
	roundsVar(f, &plan.Rounds, &plan.Span, "broker")
	return p.measuring(cmd, func() (bench.Plan, error) { return plan, nil })
}

func benchLatencyCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure how much longer one send takes through the sidecar",
		Long: "Sends one message after the other with the Go SDK, straight to overdue broker and through overdue\n" +
			"proxy: first with all of them on this machine, the ways in turns, which gives the time that the\n" +
			"sidecar itself takes; then with a broker that is a round trip away from both, which gives the round\n" +
			"trips that a send waits for, by one sender alone and by each of 16.\n" +
			"Sends that a slot covers are measured with 16 senders side by side: one alone finds none covered there.",
	}
	plan := &bench.Latency{}
	f := cmd.Flags()
	payloadVar(f, &plan.Payload)
	numberVar(f, &plan.Sends, "sends", 2000, 1, 1_000_000, "sends of each way with the broker at hand")
	numberVar(f, &plan.Delayed, "delayed", 100, 1, 10_000, "sends of each sender with the broker a round trip away")
	durationVar(f, &plan.RoundTrip, "round-trip", 5*time.Millisecond, time.Millisecond, time.Second,
		"how far away that broker is; with 20ms and more nothing goes by slots")
	return p.measuring(cmd, func() (bench.Plan, error) { return plan, nil })
}

func benchCostCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Measure what a message costs that is received in time",
		Long: "Sends so many messages a second through overdue proxy, while four consumers receive and complete them\n" +
			"there, and counts what proxy and monitor ask of the broker for them, from the first send until no\n" +
			"companion is left: about what a namespace would bill.",
	}
	plan := &bench.Cost{}
	f := cmd.Flags()
	listVar(f, &plan.Rates, "rates", "1000,10000", "messages per second, one number for each case", within(parseNumber, 10, 1_000_000))
	companionsVar(cmd, &plan.Companions, "slot")
	durationVar(f, &plan.Span, "span", 10*time.Second, 10*time.Millisecond, 10*time.Minute,
		"for how long messages are sent")
	durationVar(f, &plan.Deadline, "deadline", 3*time.Second, benchMinDeadline, benchMaxDeadline,
		"the time to live of each message")
	return p.measuring(cmd, func() (bench.Plan, error) { return plan, nil })
}

func benchExpireCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expire",
		Short: "Measure how late missed deadlines are honoured, and the cost",
		Long: "For each number of outstanding deadlines this starts an Overdue with its embedded broker in a process\n" +
			"of its own, sends that many messages over AMQP, lets their deadlines pass and counts the outcome of\n" +
			"each: with no consumer, then while somebody empties the dead-letter queue, then with four consumers\n" +
			"that receive nine tenths of them.\n" +
			"Lag is computed from the broker's timestamps. All cases take about three minutes.",
	}
	plan := &bench.Expire{}
	f := cmd.Flags()
	listVar(f, &plan.Outstanding, "outstanding", "1000,10000,100000",
		"how many deadlines are outstanding, one number for each case", within(parseNumber, 1, 1_000_000))
	f.BoolVar(&plan.Mixed, "mixed", true, "measure each case once more with four consumers, who receive 90 % of the messages")
	f.BoolVar(&plan.Drained, "drained", true, "measure each case once more while somebody empties the dead-letter queue")
	numberVar(f, &plan.Queues, "queues", 1, 1, 1000,
		"how many queues the messages are spread over, of which nobody receives from more than one")
	numberVar(f, &plan.Load, "load", 0, 0, 100, "how many other processes keep the processors busy meanwhile")
	var deadlines deadlineRange
	deadlineRangeVar(f, &deadlines, "each send")
	f.BoolVar(&plan.FromFirstSend, "from-first-send", false, "the range begins at the first send, not at each")
	payloadVar(f, &plan.Payload)
	companionsVar(cmd, &plan.Companions, config.SettingAt("companions").Default)
	return p.measuring(cmd, func() (bench.Plan, error) {
		plan.Shortest, plan.Longest = deadlines.shortest, deadlines.longest
		return plan, nil
	})
}

func benchSettleCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settle",
		Short: "Count notifications of messages completed around their deadlines",
		Long: "Consumers lock messages and complete each a few milliseconds before or after its deadline, while\n" +
			"somebody empties the dead-letter queue: through the AMQP endpoint of Overdue, and then straight to the\n" +
			"broker. One message more for every ten is received by nobody, and needs its notification.\n" +
			"Exit code 1 when a message was notified that was completed through the endpoint.",
	}
	plan := &bench.Settle{}
	f := cmd.Flags()
	numberVar(f, &plan.Messages, "messages", 10_000, 10, 100_000, "messages that are completed")
	durationVar(f, &plan.Spread, "spread", 5*time.Millisecond, 0, time.Second,
		"how long before or after its deadline each is completed, at most")
	var deadlines deadlineRange
	deadlineRangeVar(f, &deadlines, "the first send")
	return p.measuring(cmd, func() (bench.Plan, error) {
		plan.Shortest, plan.Longest = deadlines.shortest, deadlines.longest
		return plan, nil
	})
}

func benchCheckCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Measure what it costs to expire a few messages in a long queue",
		Long: "Fills a queue with live messages that nobody receives, and a few among them, evenly spread, whose\n" +
			"deadlines come at one moment; and counts what the monitor asks of the broker to dead-letter these few\n" +
			"and to notify. That should not depend on the length of the queue.\n" +
			"A million live messages take the broker about 700 MiB.",
	}
	plan := &bench.Check{}
	f := cmd.Flags()
	listVar(f, &plan.Live, "live", "1000,1000000", "live messages, one number for each case", within(parseNumber, 10, 10_000_000))
	numberVar(f, &plan.Overdue, "overdue", 10, 1, 1000, "messages whose deadlines are missed")
	durationVar(f, &plan.Notice, "notice", 2*time.Second, 200*time.Millisecond, time.Minute,
		"how long after the last send the deadlines come, at least")
	return p.measuring(cmd, func() (bench.Plan, error) {
		if most := slices.Min(plan.Live); plan.Overdue > most {
			return nil, fmt.Errorf("--overdue: %d are more than the %d live messages that they are to lie among", plan.Overdue, most)
		}
		return plan, nil
	})
}
