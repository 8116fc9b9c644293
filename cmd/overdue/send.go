// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/messages"
	"overdue/internal/servicebus/duration"
)

func (p *program) sendCommand() *cobra.Command {
	var o messages.SendOptions
	cmd := &cobra.Command{
		Use:   "send queue-or-topic",
		Short: "Send messages through an AMQP endpoint, with their companions",
		Long: "Sends a message, or --count of them, as an app behind Overdue does: when the command prints that a message\n" +
			"was sent, its deadline has a companion. With a namespace configured the command opens an endpoint of its own.\n" +
			"Without one it sends through the Overdue that runs on this machine.",
		Example: "  overdue send orders --body 'one coffee' --within 30s\n" +
			"  overdue send orders --body-file order.json --content-type application/json\n" +
			"  echo hello | overdue send events --body-file - --ttl 1m --property urgent=true",
	}
	var endpoint string
	endpointFlag(cmd, &endpoint)
	f := cmd.Flags()
	f.StringVar(&o.Body, "body", "", "the body, as text")
	textVar(f, &o.BodyFile, "body-file", anyLength, "a file that holds the body, - for standard input")
	f.StringVar(&o.MessageID, "message-id", "", "message-id; with --count a number follows it. By default a random one")
	f.StringVar(&o.SessionID, "session-id", "", "session")
	f.StringVar(&o.PartitionKey, "partition-key", "", "partition key")
	f.StringVar(&o.CorrelationID, "correlation-id", "", "correlation-id")
	f.StringVar(&o.Subject, "subject", "", "subject, also called label")
	f.StringVar(&o.ContentType, "content-type", "", "content type, such as application/json")
	f.StringVar(&o.To, "to", "", "to")
	f.StringVar(&o.ReplyTo, "reply-to", "", "reply-to")
	durationVar(f, &o.TTL, "ttl", 0, time.Millisecond, messages.MaxTTL, "time to live, 1ms to "+duration.Format(messages.MaxTTL))
	durationVar(f, &o.Within, "within", 0, time.Millisecond, dlq.Longest, "deadline: to be received within this time after it is enqueued (overdue-within)")
	textVar(f, &o.Deadline, "deadline", anyLength, "deadline: to be received by this time, RFC 3339 (overdue-deadline)")
	durationVar(f, &o.CompleteWithin, "complete-within", 0, time.Millisecond, dlq.Longest, "to be completed within this time after it is enqueued (overdue-complete-within)")
	textVar(f, &o.At, "at", anyLength, "when it is enqueued: RFC 3339, or a duration from now")
	f.StringArrayVar(&o.Properties, "property", nil, "an application property, name=value; true, false and whole numbers keep their types. May be repeated")
	numberVar(f, &o.Count, "count", 1, 1, messages.MaxSent, "how many")
	jsonFlag(cmd, &o.JSON)
	var send func(context.Context, *operator.Connection) error
	check := func(args []string) error {
		o.In = cmd.InOrStdin()
		template, err := o.Message(time.Now())
		if err != nil {
			return err
		}
		send = func(ctx context.Context, conn *operator.Connection) error {
			return messages.Send(ctx, conn, args[0], template, o, p.stdout)
		}
		return config.CheckEntity(args[0])
	}
	return p.configured(cmd, settings("namespace", "monitorQueue", "monitorQueues"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		conn, err := operator.ConnectSender(ctx, c, endpoint, p.stderr)
		if err != nil {
			return err
		}
		defer conn.Close()
		return send(ctx, conn)
	})
}
