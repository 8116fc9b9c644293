// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/container"
	"overdue/internal/testing/racetest"
)

// emulatorConnection is the connection string that the official emulator documents.
const emulatorConnection = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"

// The image is started as the modules of Testcontainers start the official emulator, and waited for
// as they wait: for a line, or for /health on 5300.
func TestTheImageStandsInForTheOfficialEmulator(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	if !container.HasOwnNetwork(t) {
		return
	}
	image := container.Emulator(t)
	official := []string{"ACCEPT_EULA=Y", "SQL_SERVER=mssql-container", "MSSQL_SA_PASSWORD=Only-for-tests-1", "SQL_WAIT_INTERVAL=0"}

	c := image.Start(t, official...)
	c.WaitForLine(t, "Emulator Service is Successfully Up!")
	for _, port := range []string{"5672", "5300"} {
		if status := getStatus(t, "http://localhost:"+port+"/health"); status != http.StatusOK {
			t.Errorf("/health on %s = %d, want 200", port, status)
		}
	}
	if err := c.Healthy(t); err != nil {
		t.Error(err)
	}
	client := emulatorClient(t)
	sendTo(t, client, "queue.1", "to the queue", nil)
	receiveFrom(t, client, "to the queue", "queue.1")
	sendTo(t, client, "topic.1", "to the topic", map[string]any{"prop1": "value1"})
	receiveFrom(t, client, "to the topic", "topic.1", "subscription.2")
	receiveFrom(t, client, "to the topic", "topic.1", "subscription.3")
	c.Stop(t)

	// A volume keeps what was sent, and EMULATOR_HTTP_PORT is another port.
	kept := append(official, "OVERDUE_BROKER_DIRECTORY=/var/lib/overdue/broker", "EMULATOR_HTTP_PORT=8080")
	c = image.Start(t, kept...)
	c.WaitForLine(t, "Emulator Service is Successfully Up!")
	if status := getStatus(t, "http://localhost:8080/health"); status != http.StatusOK {
		t.Errorf("/health on the port of EMULATOR_HTTP_PORT = %d, want 200", status)
	}
	sendTo(t, emulatorClient(t), "queue.1", "kept", nil)
	c.Stop(t)
	c = image.Start(t, kept...)
	c.WaitForLine(t, "Emulator Service is Successfully Up!")
	receiveFrom(t, emulatorClient(t), "kept", "queue.1")
	c.Stop(t)

	// Nobody has to accept a licence, and a file is where the official emulator has it.
	image.Copy(t, `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}]}}`, "/ServiceBus_Emulator/ConfigFiles/Config.json")
	c = image.Start(t)
	c.WaitForLine(t, "The entities are those of /ServiceBus_Emulator/ConfigFiles/Config.json: orders.")
	c.WaitForLine(t, "Emulator Service is Successfully Up!")
	client = emulatorClient(t)
	sendTo(t, client, "orders", "to the file's queue", nil)
	receiveFrom(t, client, "to the file's queue", "orders")
	sender, err := client.NewSender("queue.1", nil)
	if err == nil {
		err = sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
	}
	if err == nil {
		t.Error("a queue that the file does not list takes messages")
	}
}

func getStatus(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

func emulatorClient(t *testing.T) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(emulatorConnection, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) }) // its broker may be gone
	return client
}

func sendTo(t *testing.T, client *azservicebus.Client, entity, body string, properties map[string]any) {
	t.Helper()
	sender, err := client.NewSender(entity, nil)
	if err == nil {
		err = sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(body), ApplicationProperties: properties}, nil)
	}
	if err != nil {
		t.Fatalf("send to %s: %v", entity, err)
	}
}

// receiveFrom receives and completes a message of a queue, or of a topic and its subscription.
func receiveFrom(t *testing.T, client *azservicebus.Client, body string, from ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receiver, err := client.NewReceiverForQueue(from[0], nil)
	if len(from) > 1 {
		receiver, err = client.NewReceiverForSubscription(from[0], from[1], nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil || string(messages[0].Body) != body {
		t.Fatalf("receive from %q = %v, %v, want %q", from, messages, err, body)
	}
	if err := receiver.CompleteMessage(ctx, messages[0], nil); err != nil {
		t.Errorf("complete a message of %q: %v", from, err)
	}
}
