// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/failure"
)

const (
	// MaxSent bounds the messages of one command.
	MaxSent = 1_000_000
	maxBody = 100 << 20 // bytes, what a premium namespace takes
	// MaxTTL is the longest time to live that the Go SDK states: it takes the rest of a division by 2³² for a longer one
	// (go-amqp, Milliseconds.Marshal), and the last of these values stands for longer ones as well.
	MaxTTL = (1<<32 - 2) * time.Millisecond
)

// SendOptions are what a message is made of. Of strings "" means that there is none.
type SendOptions struct {
	Body, BodyFile                                       string
	MessageID, SessionID, CorrelationID, Subject         string
	ContentType, ReplyTo, To, PartitionKey, Deadline, At string
	TTL, Within, CompleteWithin                          time.Duration
	Properties                                           []string
	Count                                                int
	JSON                                                 bool
	In                                                   io.Reader
}

// Message is what is sent, but for its id where there are several.
func (o *SendOptions) Message(now time.Time) (*azservicebus.Message, error) {
	body, err := o.read()
	if err != nil {
		return nil, err
	}
	m := &azservicebus.Message{
		Body: body, MessageID: amqp.Optional(o.MessageID), SessionID: amqp.Optional(o.SessionID), PartitionKey: amqp.Optional(o.PartitionKey),
		CorrelationID: amqp.Optional(o.CorrelationID), Subject: amqp.Optional(o.Subject), ContentType: amqp.Optional(o.ContentType),
		To: amqp.Optional(o.To), ReplyTo: amqp.Optional(o.ReplyTo),
	}
	if o.TTL > 0 {
		m.TimeToLive = &o.TTL
	}
	if o.At != "" {
		at, err := instant(o.At, now)
		if err != nil {
			return nil, fmt.Errorf("--at: %w", err)
		}
		m.ScheduledEnqueueTime = &at
	}
	set := func(name string, v any) {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[name] = v
	}
	for _, text := range o.Properties {
		name, value, err := property(text)
		if err != nil {
			return nil, err
		}
		set(name, dlq.Typed(value))
	}
	if o.Deadline != "" {
		at, err := time.Parse(time.RFC3339, o.Deadline)
		if err != nil {
			return nil, fmt.Errorf("--deadline is %q; write it as 2026-01-31T17:00:00Z", config.Clip(o.Deadline))
		}
		set("overdue-deadline", at.UTC())
	}
	if o.Within > 0 {
		set("overdue-within", o.Within.String())
	}
	if o.CompleteWithin > 0 {
		set("overdue-complete-within", o.CompleteWithin.String())
	}
	return m, nil
}

// read reads the body.
func (o *SendOptions) read() ([]byte, error) {
	switch {
	case o.Body != "" && o.BodyFile != "":
		return nil, errors.New("--body and --body-file are both given; keep one")
	case o.BodyFile == "":
		return []byte(o.Body), nil
	}
	return readBody(o.BodyFile, o.In)
}

// readBody reads a body from a file; - is in.
func readBody(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--body-file: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("more than %d MiB, which no namespace takes", maxBody>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("--body-file: %w", err)
	}
	return b, nil
}

// instant reads a time, or a duration from now.
func instant(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	if d, err := duration.Parse(text); err == nil {
		return now.Add(d).UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-01-31T17:00:00Z nor a duration such as 90s", config.Clip(text))
}

// property reads name=value.
func property(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", "", fmt.Errorf("--property is %q; write name=value", config.Clip(text))
	}
	return name, value, nil
}

// sendResult is the JSON form of the command's result.
type sendResult struct {
	Entity     string   `json:"entity"`
	Sent       int      `json:"sent"`
	MessageIDs []string `json:"messageIds"`
}

// Send sends in batches, as large as the link takes them, and prints what has been accepted, also
// when not everything was. The connection is one that sends.
func Send(ctx context.Context, conn *operator.Connection, entity string, template *azservicebus.Message, o SendOptions, stdout io.Writer) error {
	sender, err := conn.Sender.NewSender(entity, nil)
	if err != nil {
		return fmt.Errorf("send to %s: %w", entity, err)
	}
	r := sendResult{Entity: entity, MessageIDs: []string{}}
	err = o.sendAll(ctx, sender, template, &r)
	if err != nil && o.Count > 1 {
		err = fmt.Errorf("%d of %d sent: %w", r.Sent, o.Count, err)
	}
	if o.JSON {
		return errors.Join(err, escape.WriteJSON(stdout, r))
	}
	if err == nil && o.Count == 1 {
		_, err = fmt.Fprintf(stdout, "sent %s to %s\n", escape.Text(r.MessageIDs[0]), entity)
	} else if err == nil {
		_, err = fmt.Fprintf(stdout, "sent %d messages to %s, %s to %s\n", r.Sent, entity, escape.Text(r.MessageIDs[0]), escape.Text(r.MessageIDs[r.Sent-1]))
	}
	return err
}

func (o *SendOptions) sendAll(ctx context.Context, sender *azservicebus.Sender, template *azservicebus.Message, r *sendResult) error {
	prefix := o.MessageID
	if prefix == "" {
		prefix = rand.Text()
	}
	if o.Count == 1 {
		m := *template
		m.MessageID = &prefix
		if err := sender.SendMessage(ctx, &m, nil); err != nil {
			return failure.Sending(r.Entity, err)
		}
		r.Sent, r.MessageIDs = 1, append(r.MessageIDs, prefix)
		return nil
	}
	for r.Sent < o.Count {
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return failure.Sending(r.Entity, err)
		}
		var ids []string
		for r.Sent+len(ids) < o.Count {
			m := *template
			id := fmt.Sprintf("%s-%d", prefix, r.Sent+len(ids)+1)
			m.MessageID = &id
			err := batch.AddMessage(&m, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) && len(ids) > 0 {
				break
			}
			if err != nil {
				return failure.Sending(r.Entity, err)
			}
			ids = append(ids, id)
		}
		if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
			return failure.Sending(r.Entity, err)
		}
		r.Sent += len(ids)
		r.MessageIDs = append(r.MessageIDs, ids...)
	}
	return nil
}
