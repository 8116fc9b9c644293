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

// startNATS runs a server in this process, and reaches it over TCP.
func startNATS(dir string, syncAlways bool) (conn *nats.Conn, stop func(), err error) {
	srv, err := server.NewServer(&server.Options{
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: syncAlways,
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make a NATS server: %w", err)
	}
	srv.Start()
	stop = func() {
		if conn != nil {
			conn.Close()
		}
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	if !srv.ReadyForConnections(startTimeout) {
		stop()
		return nil, nil, errors.New("the NATS server does not become ready")
	}
	if conn, err = nats.Connect(srv.ClientURL()); err != nil {
		stop()
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, stop, nil
}

// startSyncingNATS has a stream whose file is synced for each message. Senders share a connection.
func startSyncingNATS(ctx context.Context, _ *overdueBuild, dir string) (*runningBroker, error) {
	conn, stop, err := startNATS(dir, true)
	if err != nil {
		return nil, err
	}
	const subject = "sends"
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:      "sends",
			Subjects:  []string{subject},
			Storage:   jetstream.FileStorage,
			Retention: jetstream.WorkQueuePolicy,
		})
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("create a stream: %w", err)
	}
	return &runningBroker{
		version: "NATS " + server.VERSION,
		stop:    func() error { stop(); return nil },
		open: func(_ context.Context, messages int) (func(context.Context) error, error) {
			body := payload(0)
			if messages == 1 {
				return func(ctx context.Context) error {
					_, err := js.Publish(ctx, subject, body)
					return err
				}, nil
			}
			acks := make([]jetstream.PubAckFuture, messages)
			return func(ctx context.Context) (err error) {
				for i := range acks {
					if acks[i], err = js.PublishAsync(subject, body); err != nil {
						return err
					}
				}
				for _, ack := range acks {
					select {
					case <-ack.Ok():
					case err := <-ack.Err():
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			}, nil
		},
	}, nil
}

// measureNATS loads a server with deadlines.
func measureNATS(ctx context.Context, d *deadlines, dir string, v natsVariant) (_ string, err error) {
	conn, stop, err := startNATS(dir, false)
	if err != nil {
		return "", err
	}
	defer stop()
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
