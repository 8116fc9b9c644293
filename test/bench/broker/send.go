// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

var body = bytes.Repeat([]byte("x"), 256)

func sdkMessage() *azservicebus.Message { return &azservicebus.Message{Body: body} }

func plainMessage() *goamqp.Message { return goamqp.NewMessage(body) }

// encoded is a message as the SDK encodes it.
func encoded(m *goamqp.Message) []byte {
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // of a message that is written here
	}
	return b
}

// batchOf encodes a batch as the SDK does: each message in a data section.
func batchOf(n int, m func(i int) *goamqp.Message) []byte {
	var b []byte
	for i := range n {
		b = amqp.AppendData(b, encoded(m(i)))
	}
	return b
}

func same(int) *goamqp.Message { return plainMessage() }

// sends measures sending, one by one and in batches.
func (b *bench) sends(ctx context.Context) error {
	for _, n := range []int{1, senders} {
		for _, l := range []struct {
			name string
			open func(ctx context.Context) (send func() (int, error), end func() error, err error)
		}{
			{"SDK", b.sdkSender(plainQueue)},
			{"go-amqp", b.plainSender(plainQueue, 0, encoded(plainMessage()), 1)},
			{"SDK, batches of 100", b.sdkBatchSender(plainQueue)},
			{"go-amqp, batches of 100", b.plainSender(plainQueue, amqp.BatchMessageFormat, batchOf(perBatch, same), perBatch)},
		} {
			if err := b.rate(fmt.Sprintf("send, %d at once: %s", n, l.name), func(begin func()) (int, error) {
				return b.together(ctx, n, l.open, begin)
			}); err != nil {
				return err
			}
		}
	}
	for _, l := range []struct {
		name, entity string
		format       uint32
		payload      []byte
		each         int
	}{
		{"raw", plainQueue, 0, encoded(plainMessage()), 1},
		{"raw, batches of 100", plainQueue, amqp.BatchMessageFormat, batchOf(perBatch, same), perBatch},
		{"raw, to a topic with 100 rules", ruledTopic, 0, encoded(ruled(0)), 1},
	} {
		if err := b.rate("send: "+l.name, func(begin func()) (int, error) {
			return b.pumped(l.entity, l.format, l.payload, l.each, begin)
		}); err != nil {
			return err
		}
	}
	return b.rate("send: raw, batches of 100, duplicate detection", func(begin func()) (int, error) {
		p, err := pump.New(b.srv.address, duplicateQueue, amqp.RoleSender)
		if err != nil {
			return 0, err
		}
		begin()
		n := 0
		for end := time.Now().Add(b.span); time.Now().Before(end); n += 50 * perBatch {
			for i := range 50 {
				batch := batchOf(perBatch, func(j int) *goamqp.Message { return identified(n + i*perBatch + j) })
				if err := p.Send(amqp.BatchMessageFormat, batch, 1); err != nil {
					return n, err
				}
			}
		}
		return n, p.Close()
	})
}

// pumped sends payload, which holds each messages, for the time of a line.
func (b *bench) pumped(entity string, format uint32, payload []byte, each int, begin func()) (int, error) {
	p, err := pump.New(b.srv.address, entity, amqp.RoleSender)
	if err != nil {
		return 0, err
	}
	begin()
	n := 0
	for end := time.Now().Add(b.span); time.Now().Before(end); {
		step := max(10_000/each, 1)
		if err := p.Send(format, payload, step); err != nil {
			return n, err
		}
		n += step * each
	}
	return n, p.Close()
}

// together runs senders side by side for the time of a line. Each has what open makes, on a
// connection of its own; a send returns how many messages that was.
func (b *bench) together(ctx context.Context, senders int, open func(context.Context) (func() (int, error), func() error, error), begin func()) (total int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sends := make([]func() (int, error), senders)
	for i := range sends {
		send, end, err := open(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, end()) }()
		if _, err := send(); err != nil { // opens the link
			return 0, err
		}
		sends[i] = send
	}
	begin()
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(b.span)
	for _, send := range sends {
		wg.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				k, err := send()
				if err != nil {
					cancel(err)
				}
				n.Add(int64(k))
			}
		})
	}
	wg.Wait()
	return int(n.Load()), context.Cause(ctx)
}

type opener = func(ctx context.Context) (send func() (int, error), end func() error, err error)

func (b *bench) sdkSender(queue string) opener {
	return func(ctx context.Context) (func() (int, error), func() error, error) {
		client, err := b.srv.sdk()
		if err != nil {
			return nil, nil, err
		}
		s, err := client.NewSender(queue, nil)
		return func() (int, error) { return 1, s.SendMessage(ctx, sdkMessage(), nil) },
			func() error { return client.Close(context.WithoutCancel(ctx)) }, err
	}
}

// sdkBatchSender makes a new batch each time, since an app has to encode its messages.
func (b *bench) sdkBatchSender(queue string) opener {
	return func(ctx context.Context) (func() (int, error), func() error, error) {
		client, err := b.srv.sdk()
		if err != nil {
			return nil, nil, err
		}
		s, err := client.NewSender(queue, nil)
		send := func() (int, error) {
			batch, err := s.NewMessageBatch(ctx, nil)
			if err != nil {
				return 0, err
			}
			for range perBatch {
				if err := batch.AddMessage(sdkMessage(), nil); err != nil {
					return 0, err
				}
			}
			return perBatch, s.SendMessageBatch(ctx, batch, nil)
		}
		return send, func() error { return client.Close(context.WithoutCancel(ctx)) }, err
	}
}

// plainSender sends with go-amqp what is encoded already, one after the other.
func (b *bench) plainSender(queue string, format uint32, payload []byte, messages int) opener {
	return func(ctx context.Context) (func() (int, error), func() error, error) {
		conn, session, err := b.srv.plain(ctx)
		if err != nil {
			return nil, nil, err
		}
		s, err := session.NewSender(ctx, queue, nil)
		m := plainMessage()
		if format != 0 {
			m = goamqp.NewMessage(nil)
			m.Format, m.Data = format, nil
			for inner := range payloadSections(payload) {
				m.Data = append(m.Data, inner)
			}
		}
		return func() (int, error) { return messages, s.Send(ctx, m, nil) }, conn.Close, err
	}
}

// payloadSections is the messages of a batch.
func payloadSections(payload []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		envelope, err := amqp.ParseMessage(payload)
		if err != nil {
			panic(err) // of bytes that are encoded here
		}
		for inner, err := range amqp.DataSections(envelope.Body) {
			if err != nil {
				panic(err)
			}
			if !yield(inner) {
				return
			}
		}
	}
}
