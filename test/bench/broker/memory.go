// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// memory measures the memory of a waiting message in addition to its own bytes.
func (b *bench) memory(context.Context) error {
	if b.skips("memory") {
		return nil
	}
	fmt.Printf("\n%-58s %10s\n", fmt.Sprintf("memory: %d messages wait", b.deep), "bytes each")
	for _, l := range []struct {
		name, entity string
		m            func(i int) *goamqp.Message
	}{
		{"in a queue", plainQueue, same},
		{"with a message-id of 32 bytes", plainQueue, identified},
		{"the same with duplicate detection", duplicateQueue, identified},
		{"with a time to live", plainQueue, func(i int) *goamqp.Message {
			m := identified(i)
			m.Header = &goamqp.MessageHeader{TTL: time.Hour + time.Duration(i)*time.Millisecond}
			return m
		}},
		{"scheduled", plainQueue, func(i int) *goamqp.Message {
			m := identified(i)
			m.Annotations = goamqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(time.Hour + time.Duration(i)*time.Millisecond)}
			return m
		}},
		{fmt.Sprintf("in %d sessions", manySessions), sessionQueues[1], inSession(manySessions)},
		{"in a subscription, by one of 100 rules", ruledTopic, ruled},
	} {
		if err := b.srv.reset(); err != nil {
			return err
		}
		before, err := b.srv.heap()
		if err != nil {
			return err
		}
		if err := b.fill(l.entity, b.deep, l.m); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		after, err := b.srv.heap()
		if err != nil {
			return err
		}
		own := len(encoded(l.m(b.deep / 2)))
		fmt.Printf("%-58s %10s\n", l.name, fmt.Sprintf("%d + %d", own, int(after-before)/b.deep-own))
	}
	return b.srv.reset()
}

// identified is a message with an id of 32 bytes.
func identified(i int) *goamqp.Message {
	m := plainMessage()
	m.Properties = &goamqp.MessageProperties{MessageID: fmt.Sprintf("%032x", i)}
	return m
}

// ruled is a message that the last of the topic's rules wants.
func ruled(int) *goamqp.Message {
	m := plainMessage()
	m.ApplicationProperties = map[string]any{"kind": "k0", "quantity": int64(10)}
	return m
}
