// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsSubject begins the subject that each message has of its own.
const natsSubject = "deadline."

// measureNATSTTL gives each message a time to live. The stream writes a marker when it removes
// the last message of a subject, and the marker is what fires. No message lives shorter than the
// markers do, for which a second is the least.
func measureNATSTTL(ctx context.Context, d *deadlines, dir string) (string, error) {
	return measureNATS(ctx, d, dir, natsVariant{
		stream: jetstream.StreamConfig{Subjects: []string{natsSubject + "*"}, AllowMsgTTL: true,
			SubjectDeleteMarkerTTL: time.Second},
		message: func(m *nats.Msg, i int) {
			d.handOver(i)
			m.Header.Set("Nats-TTL", d.ttl[i].String())
		},
		received: natsSubject + "*",
		index: func(m jetstream.Msg) int {
			if m.Headers().Get("Nats-Marker-Reason") == "" {
				return -1
			}
			i, err := strconv.Atoi(strings.TrimPrefix(m.Subject(), natsSubject))
			if err != nil {
				return -1
			}
			return i
		},
	})
}

// measureNATSSchedules has the stream publish each message at its deadline.
func measureNATSSchedules(ctx context.Context, d *deadlines, dir string) (string, error) {
	const target = "fired"
	return measureNATS(ctx, d, dir, natsVariant{
		stream: jetstream.StreamConfig{Subjects: []string{natsSubject + "*", target},
			AllowMsgSchedules: true, AllowMsgTTL: true},
		message: func(m *nats.Msg, i int) {
			m.Header.Set("Nats-Schedule", "@at "+d.handOver(i).UTC().Format(time.RFC3339Nano))
			m.Header.Set("Nats-Schedule-Target", target)
		},
		received: target,
		index:    func(m jetstream.Msg) int { return indexOf(m.Data()) },
	})
}

// A natsVariant is one way to have JetStream hold a message back.
type natsVariant struct {
	stream   jetstream.StreamConfig
	message  func(m *nats.Msg, i int)      // adds headers
	received string                        // the subject of what fires
	index    func(m jetstream.Msg) (i int) // -1: no message that fires
}

// measureNATS runs the server in this process, and reaches it over TCP.
func measureNATS(ctx context.Context, d *deadlines, dir string, v natsVariant) (_ string, err error) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT,
		JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return "", fmt.Errorf("make a NATS server: %w", err)
	}
	srv.Start()
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	if !srv.ReadyForConnections(startTimeout) {
		return "", errors.New("the NATS server does not become ready")
	}
	conn, err := nats.Connect(srv.ClientURL())
	if err != nil {
		return "", fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		return "", fmt.Errorf("open JetStream: %w", err)
	}
	v.stream.Name, v.stream.Storage = "deadlines", jetstream.MemoryStorage
	stream, err := js.CreateStream(ctx, v.stream)
	if err != nil {
		return "", fmt.Errorf("create a stream: %w", err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: v.received, AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		return "", fmt.Errorf("create a consumer: %w", err)
	}
	receiving, err := consumer.Consume(func(m jetstream.Msg) { d.fire(v.index(m)) })
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	defer receiving.Stop()
	err = d.load(ctx, 1, 1000, func(_ context.Context, _, first, end int) error {
		for i := first; i < end; i++ {
			m := &nats.Msg{Subject: natsSubject + strconv.Itoa(i), Data: payload(i), Header: nats.Header{}}
			v.message(m, i)
			if _, err := js.PublishMsgAsync(m); err != nil {
				return err
			}
		}
		if end < len(d.ttl) {
			return nil
		}
		select {
		case <-js.PublishAsyncComplete():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return "", err
	}
	return "NATS " + server.VERSION, d.await(ctx)
}
