// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/test/bench/pump"
)

const (
	perBatch = 100
	senders  = 16
)

// Every message lives for an hour, which is its deadline where it is monitored. It has no
// message-id, as the SDKs send it: the endpoint makes one where a companion has to name it.
var (
	body  = bytes.Repeat([]byte("x"), 256)
	hour  = time.Hour
	plain = encode(&goamqp.Message{Header: &goamqp.MessageHeader{TTL: hour}, Data: [][]byte{body}})
	batch = batchOf(plain)
)

func sdkMessage() *azservicebus.Message {
	return &azservicebus.Message{Body: body, TimeToLive: &hour}
}

func encode(m *goamqp.Message) []byte {
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // of a message that is written here
	}
	return b
}

func batchOf(message []byte) (b []byte) {
	for range perBatch {
		b = amqp.AppendData(b, message)
	}
	return b
}

// A worker sends or receives, again and again; it returns how many messages that was.
type worker func() (int, error)

// clients are what works side by side on one line.
type clients struct {
	workers []worker
	ends    []func() error
}

func (c *clients) close() (err error) {
	for _, end := range c.ends {
		err = errors.Join(err, end())
	}
	return err
}

// An opener connects the clients of a line.
type opener func(ctx context.Context, address, queue string) (*clients, error)

func dialSDK(address string) (*azservicebus.Client, error) {
	return azservicebus.NewClientFromConnectionString(fmt.Sprintf(connectionString, address), nil)
}

// sdkSenders has n senders of the Go SDK on so many connections.
func sdkSenders(n, connections int, send func(context.Context, *azservicebus.Sender) (int, error)) opener {
	return func(ctx context.Context, address, queue string) (*clients, error) {
		c := &clients{}
		var open []*azservicebus.Client
		for i := range n {
			if i < connections {
				client, err := dialSDK(address)
				if err != nil {
					return c, err
				}
				open = append(open, client)
				c.ends = append(c.ends, func() error { return client.Close(context.WithoutCancel(ctx)) })
			}
			s, err := open[i%connections].NewSender(queue, nil)
			if err != nil {
				return c, err
			}
			c.workers = append(c.workers, func() (int, error) { return send(ctx, s) })
		}
		return c, nil
	}
}

func sendOne(ctx context.Context, s *azservicebus.Sender) (int, error) {
	return 1, s.SendMessage(ctx, sdkMessage(), nil)
}

// sendBatch makes a new batch each time, since an app has to encode its messages.
func sendBatch(ctx context.Context, s *azservicebus.Sender) (int, error) {
	b, err := s.NewMessageBatch(ctx, nil)
	if err != nil {
		return 0, err
	}
	for range perBatch {
		if err := b.AddMessage(sdkMessage(), nil); err != nil {
			return 0, err
		}
	}
	return perBatch, s.SendMessageBatch(ctx, b, nil)
}

// rawSenders are n clients that cost next to nothing, each on a connection of its own with so many
// sends under way.
func rawSenders(n, underway int, format uint32, payload []byte, messages int) opener {
	return func(_ context.Context, address, queue string) (*clients, error) {
		c := &clients{}
		for range n {
			p, err := pump.New(address, queue, amqp.RoleSender)
			if err != nil {
				return c, err
			}
			c.ends = append(c.ends, p.Close)
			c.workers = append(c.workers, func() (int, error) { return underway * messages, p.Send(format, payload, underway) })
		}
		return c, nil
	}
}
