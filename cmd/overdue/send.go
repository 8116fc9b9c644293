// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/messages"
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
	f.StringVar(&o.BodyFile, "body-file", "", "a file that holds the body, - for standard input")
	f.StringVar(&o.MessageID, "message-id", "", "message-id; with --count a number follows it. By default a random one")
	f.StringVar(&o.SessionID, "session-id", "", "session")
	f.StringVar(&o.PartitionKey, "partition-key", "", "partition key")
	f.StringVar(&o.CorrelationID, "correlation-id", "", "correlation-id")
	f.StringVar(&o.Subject, "subject", "", "subject, also called label")
	f.StringVar(&o.ContentType, "content-type", "", "content type, such as application/json")
	f.StringVar(&o.To, "to", "", "to")
	f.StringVar(&o.ReplyTo, "reply-to", "", "reply-to")
	durationVar(f, &o.TTL, "ttl", 0, "time to live, 1ms to "+messages.MaxTTL.String())
	durationVar(f, &o.Within, "within", 0, "deadline: to be received within this time after it is enqueued (overdue-within)")
	f.StringVar(&o.Deadline, "deadline", "", "deadline: to be received by this time, RFC 3339 (overdue-deadline)")
	durationVar(f, &o.CompleteWithin, "complete-within", 0, "to be completed within this time after it is enqueued (overdue-complete-within)")
	f.StringVar(&o.At, "at", "", "when it is enqueued: RFC 3339, or a duration from now")
	f.StringArrayVar(&o.Properties, "property", nil, "an application property, name=value; true, false and whole numbers keep their types. May be repeated")
	f.IntVar(&o.Count, "count", 1, fmt.Sprintf("how many, 1 to %d", messages.MaxSent))
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
		conn, err := p.connect(ctx, c, endpoint, true)
		if err != nil {
			return err
		}
		defer conn.Close()
		return send(ctx, conn)
	})
}
