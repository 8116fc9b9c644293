// SPDX-License-Identifier: Apache-2.0

//go:build example

package orders

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var broker *testBroker

func TestMain(m *testing.M) {
	var err error
	if broker, err = startBroker("../Config.json"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	broker.stop()
	os.Exit(code)
}

// A client of a namespace for this test alone.
func connect(t *testing.T) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(broker.connectionString(t),
		&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	return client
}

func send(t *testing.T, client *azservicebus.Client, queue string, m *azservicebus.Message) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sender.SendMessage(t.Context(), m, nil)
}

func TestOrderIsReceived(t *testing.T) {
	client := connect(t)
	if err := send(t, client, "test-orders", &azservicebus.Message{Body: []byte("one coffee")}); err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("test-orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(messages[0].Body); got != "one coffee" {
		t.Errorf("received %q, want one coffee", got)
	}
	if err := receiver.CompleteMessage(t.Context(), messages[0], nil); err != nil {
		t.Fatal(err)
	}
	if left := broker.control(t, "GET", "messages/test-orders", ""); left != "[]\n" {
		t.Errorf("left in the queue: %s", left)
	}
}

func TestOrderExpiresAfterAnHour(t *testing.T) {
	hour := time.Hour
	if err := send(t, connect(t), "test-orders", &azservicebus.Message{Body: []byte("one coffee"), TimeToLive: &hour}); err != nil {
		t.Fatal(err)
	}
	broker.control(t, "POST", "clock", `{"advance": "2h"}`)
	if dead := broker.control(t, "GET", "messages/test-orders/$DeadLetterQueue", ""); !strings.Contains(dead, "TTLExpiredException") {
		t.Errorf("dead letters: %s, want the order", dead)
	}
}

func TestFullQueueIsAnError(t *testing.T) {
	client := connect(t)
	broker.control(t, "POST", "faults", `{"entity": "test-orders", "operation": "send", "error": "full", "times": 1}`)
	if err := send(t, client, "test-orders", &azservicebus.Message{}); err == nil {
		t.Error("sent to a full queue, want an error")
	}
	if err := send(t, client, "test-orders", &azservicebus.Message{}); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

func TestMisspeltQueueIsAnError(t *testing.T) {
	var failure *azservicebus.Error
	if err := send(t, connect(t), "test-order", &azservicebus.Message{}); !errors.As(err, &failure) || failure.Code != azservicebus.CodeNotFound {
		t.Errorf("sent to a queue that does not exist: %v, want %s", err, azservicebus.CodeNotFound)
	}
}
