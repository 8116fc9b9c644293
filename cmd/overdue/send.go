// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

const (
	sendMost     = 1_000_000
	sendBodyMost = 100 << 20 // bytes, what a premium namespace takes
	// sendLongest is the longest time to live that the Go SDK states: it takes the rest of a division by 2³² for a longer one
	// (go-amqp, Milliseconds.Marshal), and the last of these values stands for longer ones as well.
	sendLongest = (1<<32 - 2) * time.Millisecond
)

// sendOptions are what a message is made of. Of strings "" means that there is none.
type sendOptions struct {
	endpoint                                                string
	body, bodyFile                                          string
	messageID, sessionID, correlationID, subject            string
	contentType, replyTo, to, partitionKey, deadline, later string
	ttl, within, completeWithin                             time.Duration
	properties                                              []string
	count                                                   int
	json                                                    bool
	in                                                      io.Reader
}

func (p *program) sendCommand() *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send queue-or-topic",
		Short: "Send messages through an AMQP endpoint, with their companions",
		Long: "Sends a message, or --count of them, as an app behind Overdue would: a message with a deadline has its\n" +
			"companion by the time that the command says sent. With a namespace configured it opens a endpoint of its own\n" +
			"for as long as it takes; without one it goes to the Overdue that runs on this machine.",
		Example: "  overdue send orders --body 'one coffee' --within 30s\n" +
			"  overdue send orders --body-file order.json --content-type application/json --session-id table-4\n" +
			"  echo hello | overdue send events --body-file - --ttl 1m --property kind=greeting --property urgent=true",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || path == "monitorQueue" })
	endpointFlag(cmd, &o.endpoint)
	f := cmd.Flags()
	f.StringVar(&o.body, "body", "", "the body, as text")
	f.StringVar(&o.bodyFile, "body-file", "", "a file that holds the body, - for standard input")
	f.StringVar(&o.messageID, "message-id", "", "message-id; with --count a number follows it. By default one is made up")
	f.StringVar(&o.sessionID, "session-id", "", "session")
	f.StringVar(&o.partitionKey, "partition-key", "", "partition key")
	f.StringVar(&o.correlationID, "correlation-id", "", "correlation-id")
	f.StringVar(&o.subject, "subject", "", "subject, also called label")
	f.StringVar(&o.contentType, "content-type", "", "content type, such as application/json")
	f.StringVar(&o.to, "to", "", "to")
	f.StringVar(&o.replyTo, "reply-to", "", "reply-to")
	durationVar(f, &o.ttl, "ttl", 0, "time to live, 1ms to "+sendLongest.String())
	durationVar(f, &o.within, "within", 0, "deadline: to be received so long after it is enqueued (overdue-within)")
	f.StringVar(&o.deadline, "deadline", "", "deadline: to be received by this time, RFC 3339 (overdue-deadline)")
	durationVar(f, &o.completeWithin, "complete-within", 0, "to be completed so long after it is enqueued (overdue-complete-within)")
	f.StringVar(&o.later, "at", "", "when it is enqueued: RFC 3339, or a duration from now")
	f.StringArrayVar(&o.properties, "property", nil, "an application property, name=value; true, false and whole numbers are sent as what they are. May be repeated")
	f.IntVar(&o.count, "count", 1, fmt.Sprintf("how many, 1 to %d", sendMost))
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.in = cmd.InOrStdin()
		template, err := o.message(time.Now())
		if err != nil {
			return &config.Error{Err: err}
		}
		if err := config.CheckEntity(args[0]); err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return p.send(cmd.Context(), c, args[0], template, o)
	}
	return cmd
}

// message is what is sent, but for its id where there are several.
func (o *sendOptions) message(now time.Time) (*azservicebus.Message, error) {
	if o.count < 1 || o.count > sendMost {
		return nil, fmt.Errorf("--count is %d; it must be between 1 and %d", o.count, sendMost)
	}
	for flag, d := range map[string]time.Duration{"ttl": o.ttl, "within": o.within, "complete-within": o.completeWithin} {
		if d != 0 && d < time.Millisecond {
			return nil, fmt.Errorf("--%s is %s; it must be at least 1ms", flag, d)
		}
	}
	if o.ttl > sendLongest {
		return nil, fmt.Errorf("--ttl is %s; it must be at most %s: the SDK makes a short life of a longer one", o.ttl, sendLongest)
	}
	body, err := o.read()
	if err != nil {
		return nil, err
	}
	m := &azservicebus.Message{
		Body: body, MessageID: given(o.messageID), SessionID: given(o.sessionID), PartitionKey: given(o.partitionKey),
		CorrelationID: given(o.correlationID), Subject: given(o.subject), ContentType: given(o.contentType),
		To: given(o.to), ReplyTo: given(o.replyTo),
	}
	if o.ttl > 0 {
		m.TimeToLive = &o.ttl
	}
	if o.later != "" {
		at, err := instant(o.later, now)
		if err != nil {
			return nil, fmt.Errorf("--at: %w", err)
		}
		m.ScheduledEnqueueTime = &at
	}
	if m.ApplicationProperties, err = properties(o.properties); err != nil {
		return nil, err
	}
	set := func(name string, v any) {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[name] = v
	}
	if o.deadline != "" {
		at, err := time.Parse(time.RFC3339, o.deadline)
		if err != nil {
			return nil, fmt.Errorf("--deadline is %q; write it as 2026-01-31T17:00:00Z", config.Clip(o.deadline))
		}
		set("overdue-deadline", at.UTC())
	}
	if o.within > 0 {
		set("overdue-within", o.within.String())
	}
	if o.completeWithin > 0 {
		set("overdue-complete-within", o.completeWithin.String())
	}
	return m, nil
}

// read reads the body.
func (o *sendOptions) read() ([]byte, error) {
	in := o.in
	switch {
	case o.body != "" && o.bodyFile != "":
		return nil, errors.New("--body and --body-file are both given; keep one")
	case o.bodyFile == "":
		return []byte(o.body), nil
	case o.bodyFile != "-":
		f, err := os.Open(o.bodyFile)
		if err != nil {
			return nil, fmt.Errorf("--body-file: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, sendBodyMost+1))
	if err == nil && len(b) > sendBodyMost {
		err = fmt.Errorf("more than %d MiB, which no namespace takes", sendBodyMost>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("--body-file: %w", err)
	}
	return b, nil
}

// given is nil for nothing.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// instant is a time, given as such or as what lies between it and now.
func instant(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	if d, err := duration.Parse(text); err == nil {
		return now.Add(d).UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-01-31T17:00:00Z nor a duration such as 90s", config.Clip(text))
}

// properties reads name=value.
func properties(texts []string) (map[string]any, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	all := map[string]any{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--property is %q; write name=value", config.Clip(text))
		}
		all[name] = typed(value)
	}
	return all, nil
}

// typed is a value as it was most likely meant: rules and consumers tell 1 from "1".
func typed(value string) any {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if value == "true" || value == "false" {
		return value == "true"
	}
	return value
}

// sendResult is the JSON form of the command's result.
type sendResult struct {
	Entity     string   `json:"entity"`
	Sent       int      `json:"sent"`
	MessageIDs []string `json:"messageIds"`
}

// send sends in batches, as large as the link takes them, and says what has been accepted, also when not all was.
func (p *program) send(ctx context.Context, c *config.Config, entity string, template *azservicebus.Message, o sendOptions) error {
	h, err := operator.ConnectSender(ctx, c, o.endpoint, p.stderr)
	if err != nil {
		return err
	}
	defer h.Close()
	sender, err := h.Sender.Current().NewSender(entity, nil)
	if err != nil {
		return fmt.Errorf("send to %s: %w", entity, err)
	}
	r := sendResult{Entity: entity, MessageIDs: []string{}}
	err = o.sendAll(ctx, sender, template, &r)
	if err != nil && o.count > 1 {
		err = fmt.Errorf("%d of %d sent: %w", r.Sent, o.count, err)
	}
	if o.json {
		return errors.Join(err, escape.WriteJSON(p.stdout, r))
	}
	if err == nil && o.count == 1 {
		_, err = fmt.Fprintf(p.stdout, "sent %s to %s\n", escape.Text(r.MessageIDs[0]), entity)
	} else if err == nil {
		_, err = fmt.Fprintf(p.stdout, "sent %d messages to %s, %s to %s\n", r.Sent, entity, escape.Text(r.MessageIDs[0]), escape.Text(r.MessageIDs[r.Sent-1]))
	}
	return err
}

func (o *sendOptions) sendAll(ctx context.Context, sender *azservicebus.Sender, template *azservicebus.Message, r *sendResult) error {
	prefix := o.messageID
	if prefix == "" {
		prefix = rand.Text()
	}
	if o.count == 1 {
		m := *template
		m.MessageID = &prefix
		if err := sender.SendMessage(ctx, &m, nil); err != nil {
			return sendFailure(r.Entity, err)
		}
		r.Sent, r.MessageIDs = 1, append(r.MessageIDs, prefix)
		return nil
	}
	for r.Sent < o.count {
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return sendFailure(r.Entity, err)
		}
		var ids []string
		for r.Sent+len(ids) < o.count {
			m := *template
			id := fmt.Sprintf("%s-%d", prefix, r.Sent+len(ids)+1)
			m.MessageID = &id
			err := batch.AddMessage(&m, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) && len(ids) > 0 {
				break
			}
			if err != nil {
				return sendFailure(r.Entity, err)
			}
			ids = append(ids, id)
		}
		if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
			return sendFailure(r.Entity, err)
		}
		r.Sent += len(ids)
		r.MessageIDs = append(r.MessageIDs, ids...)
	}
	return nil
}

// sendFailure says what to do where SDK and broker only say what went wrong.
func sendFailure(entity string, err error) error {
	var sdk *azservicebus.Error
	condition := link.Condition(err)
	switch isSDK := errors.As(err, &sdk); {
	case errors.Is(err, azservicebus.ErrMessageTooLarge), condition == "amqp:link:message-size-exceeded":
		return fmt.Errorf("the message is too large for %s; its tier bounds it, and its own limit if it has one", entity)
	case isSDK && sdk.Code == azservicebus.CodeNotFound, condition == link.ConditionNotFound:
		return fmt.Errorf("there is no queue or topic %q; create it, or correct the name", entity)
	case isSDK && sdk.Code == azservicebus.CodeUnauthorizedAccess, condition == "amqp:unauthorized-access":
		return fmt.Errorf("no right to send to %s, docs/operate/rights.md says what it takes: %s", entity, failure.Reason(err))
	case isSDK && sdk.Code == azservicebus.CodeConnectionLost:
		return fmt.Errorf("the connection was lost, and what was under way may have arrived: %s", failure.Reason(err))
	}
	return fmt.Errorf("send to %s: %s", entity, failure.Reason(err))
}
