// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
)

// exchangeInGo is what wire.js and its like do, with the Go SDK.
func exchangeInGo(ctx context.Context, to string, args ...string) (err error) {
	client, err := azservicebus.NewClientFromConnectionString(to, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(ctx)) }()
	for _, arg := range args {
		queue, kind, _ := strings.Cut(arg, "=")
		sender, err := client.NewSender(queue, nil)
		if err != nil {
			return err
		}
		if kind == lateKind {
			second := time.Second
			for i := range 3 {
				id := fmt.Sprintf("%s-%d", queue, i+1)
				if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, TimeToLive: &second}, nil); err != nil {
					return err
				}
			}
			continue
		}
		if err := exchangeOne(ctx, client, sender, queue, goMessages(kind)); err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
	}
	return nil
}

func exchangeOne(ctx context.Context, client *azservicebus.Client, sender *azservicebus.Sender, queue string, all []*azservicebus.AMQPAnnotatedMessage) error {
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	left := 0
	for i, m := range all {
		if err := sender.SendAMQPAnnotatedMessage(ctx, m, nil); err != nil {
			return err
		}
		if left++; i > 2 {
			continue
		}
		if err := batch.AddAMQPAnnotatedMessage(m, nil); err != nil {
			return err
		}
		left++
	}
	if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
		return err
	}
	return completeAll(ctx, client, queue, left)
}

// completeAll receives and completes n messages.
func completeAll(ctx context.Context, client *azservicebus.Client, queue string, n int) error {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	for n > 0 {
		some, err := receiver.ReceiveMessages(ctx, n, nil)
		if err != nil {
			return err
		}
		for _, m := range some {
			if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
			n--
		}
	}
	return receiver.Close(ctx)
}

// goMessages are the messages that the Go SDK can write, each property on a message of its own. The
// order of a map is random, and the bytes have to be the same twice.
func goMessages(kind string) []*azservicebus.AMQPAnnotatedMessage {
	at := time.UnixMilli(4_102_542_245_678).UTC()
	text := func(s string) *string { return &s }
	sequence := uint32(3)
	all := []*azservicebus.AMQPAnnotatedMessage{
		{Body: azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{{0, 1}, {254, 255}}}},
		{Body: azservicebus.AMQPAnnotatedMessageBody{Value: map[string]any{"key": []any{int32(1), "two", nil}}}},
		{Body: azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{"a", int64(1)}, {true}}}},
		{Body: azservicebus.AMQPAnnotatedMessageBody{Value: "text"}},
		{
			Body:                azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("everything")}},
			Header:              &azservicebus.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7, DeliveryCount: 2},
			DeliveryAnnotations: map[any]any{"x-opt-hop": int32(1)},
			MessageAnnotations:  map[any]any{"x-note": "n"},
			Properties: &azservicebus.AMQPAnnotatedMessageProperties{
				UserID: []byte("me"), To: text("there"), Subject: text("s"), ReplyTo: text("back"), CorrelationID: "c",
				ContentType: text("text/plain"), ContentEncoding: text("gzip"), AbsoluteExpiryTime: &at, CreationTime: &at,
				GroupID: text("group"), GroupSequence: &sequence, ReplyToGroupID: text("other"),
			},
			Footer: map[any]any{"x-sum": "1234"},
		},
	}
	for _, v := range []any{"a", "", true, int8(-1), int16(-300), int32(70_000), int64(1) << 40, uint8(200), uint32(7), uint64(1) << 63, float32(1.5), -2.25, at, nil} {
		all = append(all, &azservicebus.AMQPAnnotatedMessage{
			Body:                  azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{nil}},
			ApplicationProperties: map[string]any{"property": v},
		})
	}
	if kind != wholeKind {
		return all
	}
	for i, m := range all {
		if m.Header == nil {
			m.Header = &azservicebus.AMQPAnnotatedMessageHeader{}
		}
		if m.Properties == nil {
			m.Properties = &azservicebus.AMQPAnnotatedMessageProperties{}
		}
		m.Header.TTL, m.Properties.MessageID = time.Hour, fmt.Sprintf("id-%d", i)
	}
	return all
}

// exchangeRaw sends messages that are spelled as no SDK spells them, and receives with the Go SDK.
func exchangeRaw(ctx context.Context, to string, args ...string) error {
	client, err := azservicebus.NewClientFromConnectionString(to, nil)
	if err != nil {
		return err
	}
	defer client.Close(ctx) // everything was waited for
	addr := regexp.MustCompile(`sb://([^;/]+)`).FindStringSubmatch(to)[1]
	for _, arg := range args {
		queue, kind, _ := strings.Cut(arg, "=")
		if kind == lateKind {
			err = exchangeInGo(ctx, to, arg)
		} else {
			err = exchangeSpelled(ctx, client, addr, queue, spelled(kind))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", queue, err)
		}
	}
	return nil
}

func exchangeSpelled(ctx context.Context, client *azservicebus.Client, addr, queue string, payloads [][]byte) error {
	if err := sendRaw(ctx, addr, queue, payloads); err != nil {
		return err
	}
	return completeAll(ctx, client, queue, len(payloads))
}

// spelled are messages in encodings that are allowed and that no SDK chooses. Values are wide where
// narrow would do, descriptors go by name, sections are empty, and last fields are absent or null.
func spelled(kind string) [][]byte {
	const (
		wideHeader     = "\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70" // descriptor as an eight-byte ulong
		namedHeader    = "\x00\xa3\x10amqp:header:list"
		namedProps     = "\x00\xa3\x14amqp:properties:list"
		wideTTL        = "\x70\x00\x36\xee\x80" // an hour
		wideList       = "\xd0"
		wideID         = "\xb1\x00\x00\x00\x05wide-"
		wideData       = "\x00\x53\x75\xb0\x00\x00\x00\x04data"
		emptyAnnotated = "\x00\x53\x72\xc1\x01\x00"
		application    = "\x00\x53\x74\xd1\x00\x00\x00\x11\x00\x00\x00\x04\xa1\x01a\x56\x01\xa1\x01b\x70\x00\x00\x00\x07"
	)
	// list32 of the fields given
	list := func(count byte, fields string) string {
		n := byte(4 + len(fields))
		return wideList + "\x00\x00\x00" + string([]byte{n}) + "\x00\x00\x00" + string([]byte{count}) + fields
	}
	if kind == wholeKind {
		return [][]byte{
			[]byte(wideHeader + list(3, "\x56\x01\x50\x07"+wideTTL) + namedProps + list(1, wideID+"") + wideData),
			[]byte(namedHeader + list(5, "\x40\x40"+wideTTL+"\x40\x40") + emptyAnnotated + namedProps + list(4, wideID+"\x40\x40\xb1\x00\x00\x00\x01s") + application + wideData + wideData),
		}
	}
	return [][]byte{
		[]byte(wideData),
		[]byte(wideHeader + list(2, "\x56\x01\x50\x07") + wideData),
		[]byte(namedHeader + list(0, "") + emptyAnnotated + namedProps + list(4, "\x40\x40\x40\xb1\x00\x00\x00\x01s") + application + wideData + wideData),
		[]byte(namedProps + "\x45" + "\x00\x53\x77\x40"),
		[]byte("\x00\x53\x76\xd0\x00\x00\x00\x09\x00\x00\x00\x02\x54\x01\xa1\x01x" + "\x00\x53\x78\xd1\x00\x00\x00\x04\x00\x00\x00\x00"),
	}
}

// sendRaw sends payloads as they are, one after the other, each accepted before the next.
func sendRaw(ctx context.Context, addr, queue string, payloads [][]byte) (err error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nc.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			return err
		}
	}
	in := amqp.NewFrameReader(nc, 65536)
	await := func(done func(amqp.Performative) bool) error {
		for {
			f, err := in.Next()
			if err != nil {
				return err
			}
			if len(f.Body) == 0 {
				continue
			}
			p, _, err := amqp.DecodePerformative(f.Body)
			if err != nil || done(p) {
				return err
			}
			switch p := p.(type) {
			case *amqp.Close, *amqp.End, *amqp.Detach:
				return errors.New(amqp.Trace(p, 0))
			}
		}
	}
	begin := append([]byte{}, amqp.ProtoAMQP[:]...)
	begin = amqp.AppendFrame(begin, 0, &amqp.Open{ContainerID: "raw", Hostname: "raw", ChannelMax: 1}, nil)
	begin = amqp.AppendFrame(begin, 0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 1}, nil)
	begin = amqp.AppendFrame(begin, 0, &amqp.Attach{
		Name: "raw", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: queue, HasAddress: true},
	}, nil)
	if _, err := nc.Write(begin); err != nil {
		return err
	}
	if _, err := in.ReadProto(); err != nil {
		return err
	}
	if err := await(func(p amqp.Performative) bool { f, ok := p.(*amqp.Flow); return ok && f.LinkCredit > 0 }); err != nil {
		return err
	}
	for i, payload := range payloads {
		t := &amqp.Transfer{DeliveryID: uint32(i), HasDeliveryID: true, DeliveryTag: []byte{byte(i)}, HasMessageFormat: true}
		if _, err := nc.Write(amqp.AppendFrame(nil, 0, t, payload)); err != nil {
			return err
		}
		var state amqp.DeliveryState
		if err := await(func(p amqp.Performative) bool {
			d, ok := p.(*amqp.Disposition)
			if ok {
				state = d.State
			}
			return ok
		}); err != nil {
			return err
		}
		if _, ok := state.(amqp.Accepted); !ok {
			return fmt.Errorf("message %d: %s", i, amqp.Trace(&amqp.Disposition{State: state}, 0))
		}
	}
	if _, err := nc.Write(amqp.AppendFrame(nil, 0, &amqp.Close{}, nil)); err != nil {
		return err
	}
	return await(func(p amqp.Performative) bool { _, ok := p.(*amqp.Close); return ok })
}
