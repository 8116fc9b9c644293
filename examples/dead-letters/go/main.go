// SPDX-License-Identifier: Apache-2.0

// Command go handles the dead letters of a queue: orders that came too late go to one queue, orders
// that consumers could not handle go to another.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . CONNECTION-STRING")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, connection string) error {
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	receiver, err := client.NewReceiverForQueue("handled-orders", options)
	if err != nil {
		return err
	}
	senders := map[string]*azservicebus.Sender{}
	for _, queue := range []string{"late-orders", "failed-orders"} {
		if senders[queue], err = client.NewSender(queue, nil); err != nil {
			return err
		}
	}
	for {
		messages, err := receiver.ReceiveMessages(ctx, 10, nil)
		if err != nil {
			return err
		}
		for _, m := range messages {
			queue, reason := "failed-orders", ""
			if m.DeadLetterReason != nil {
				reason = *m.DeadLetterReason
			}
			if reason == "TTLExpiredException" || reason == "DeadlineExceeded" {
				queue = "late-orders"
			}
			// The copy keeps the message-id, so that a second copy after a crash can be recognised.
			if err := senders[queue].SendMessage(ctx, &azservicebus.Message{MessageID: &m.MessageID, Body: m.Body}, nil); err != nil {
				return err
			}
			if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
				return err
			}
			fmt.Printf("%s: %s, now in %s\n", m.MessageID, reason, queue)
		}
	}
}
