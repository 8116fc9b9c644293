// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/messages"
)

func (p *program) dlqResubmitCommand() *cobra.Command {
	var o messages.ResubmitOptions
	cmd := &cobra.Command{
		Use:   "resubmit queue-or-subscription",
		Short: "Send copies of dead letters back to their queue, or elsewhere, and take them off",
		Long: "Sends a copy of each dead letter through an AMQP endpoint and takes the dead letter off once the broker has the\n" +
			"copy. A copy has the body and the properties of its dead letter, byte for byte, but neither its time to live nor\n" +
			"the deadline that it missed: give it a new one with --within. It says where it comes from in\n" +
			"overdue-resubmitted-* properties.\n\n" +
			"It copies no dead letter twice. A journal on this machine has the copies that were sent, so a resubmission\n" +
			"that was stopped goes on where it was when you start it again. If it was stopped between a send and its\n" +
			"acknowledgement, and no copy is in the target any more, it leaves those dead letters alone and lists them.\n" +
			"--resend sends them.",
		Example: "  overdue dlq resubmit orders --reason TTLExpiredException --within 5m\n" +
			"  overdue dlq resubmit events/Subscriptions/audit --to audit-retries --older-than 1h --rate 20 --yes\n" +
			"  overdue dlq resubmit orders --message-id order-1 --dry-run",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || isMonitorQueueSetting(path) })
	r := dlqRun{options: &o.LettersOptions, endpoint: changeFlags(cmd, &o.LettersOptions), check: o.CheckTarget, sends: true}
	f := cmd.Flags()
	f.StringVar(&o.To, "to", "", "queue or topic that gets the copies; by default the queue that they are dead letters of")
	durationVar(f, &o.Copying.Within, "within", 0, "deadline of each copy: to be received within this time after it is enqueued")
	durationVar(f, &o.Copying.TTL, "ttl", 0, "time to live of each copy")
	f.BoolVar(&o.NewIDs, "new-ids", false, "give copies message-ids of their own; done anyway where the target detects duplicates")
	f.BoolVar(&o.KeepIDs, "keep-ids", false, "keep the message-ids, though it is not known whether the target detects duplicates")
	f.BoolVar(&o.Resend, "resend", false, "also send dead letters that a stopped resubmission may have sent")
	f.StringVar(&o.Journal, "journal", "", "file with the copies that were sent; by default one for each target in the user's cache folder")
	r.do = func(ctx context.Context, conn *operator.Connection, place dlq.Place) error {
		return messages.Resubmit(ctx, conn, place, &o, p.stdout)
	}
	cmd.RunE = r.run(p, load)
	return cmd
}

func (p *program) dlqPurgeCommand() *cobra.Command {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:   "purge queue-or-subscription",
		Short: "Take dead letters off for good",
		Example: "  overdue dlq purge orders --reason TTLExpiredException --older-than 168h\n" +
			"  overdue dlq purge events/Subscriptions/audit --all --yes --rate 0",
	}
	load := p.configFlags(cmd, isNamespace)
	r := dlqRun{options: &o, endpoint: changeFlags(cmd, &o)}
	r.do = func(ctx context.Context, conn *operator.Connection, place dlq.Place) error {
		return messages.Purge(ctx, conn, place, &o, p.stdout)
	}
	cmd.RunE = r.run(p, load)
	return cmd
}
