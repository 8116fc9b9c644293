// SPDX-License-Identifier: Apache-2.0

// Command go sends an order that nobody receives, and reads it from the dead-letter queue.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . CONNECTION-STRING")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, connection string) error {
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		return err
	}
	defer client.Close(ctx)

	sender, err := client.NewSender("sidecar-orders", nil)
	if err != nil {
		return err
	}
	id, life := "order-1", 2*time.Second
	order := &azservicebus.Message{MessageID: &id, Body: []byte("one coffee"), TimeToLive: &life}
	if err := sender.SendMessage(ctx, order, nil); err != nil {
		return err
	}
	fmt.Println("sent", id)

	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	receiver, err := client.NewReceiverForQueue("sidecar-orders", options)
	if err != nil {
		return err
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil) // waits for the first
	if err != nil {
		return err
	}
	for _, m := range messages {
		fmt.Println(m.MessageID, string(m.Body), *m.DeadLetterReason)
		if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
			return err
		}
	}
	return nil
}
