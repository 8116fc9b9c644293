// SPDX-License-Identifier: Apache-2.0

//go:build example

package orders

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var broker string // host:port

// One broker for all tests of the package, on any free port.
func TestMain(m *testing.M) {
	cmd := exec.Command("overdue", "broker", "--broker-listen", "127.0.0.1:0", "--isolate", "--broker-expiry", "eager", "--log-level", "warn")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for lines := bufio.NewScanner(stdout); broker == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Endpoint=sb://"); ok {
			broker, _, _ = strings.Cut(rest, ";")
		}
	}
	code := m.Run()
	_ = cmd.Process.Kill()
	os.Exit(code)
}

// A client of a namespace for this test alone. The broker creates its queues on first use.
func connect(t *testing.T) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(
		"Endpoint=sb://"+broker+";SharedAccessKeyName="+t.Name()+";SharedAccessKey=any;UseDevelopmentEmulator=true",
		&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	return client
}

func send(t *testing.T, client *azservicebus.Client, m *azservicebus.Message) error {
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return sender.SendMessage(t.Context(), m, nil)
}

// control reads or changes the state of the broker over HTTP.
func control(t *testing.T, method, path, body string) string {
	req, err := http.NewRequest(method, "http://"+broker+"/_overdue/"+path+"?namespace="+url.QueryEscape(t.Name()), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s: %s %s %v", path, resp.Status, answer, err)
	}
	return string(answer)
}

func TestOrderIsReceived(t *testing.T) {
	client := connect(t)
	if err := send(t, client, &azservicebus.Message{Body: []byte("one coffee")}); err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
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
	if left := control(t, "GET", "messages/orders", ""); left != "[]\n" {
		t.Errorf("left in the queue: %s", left)
	}
}

func TestOrderExpiresAfterAnHour(t *testing.T) {
	hour := time.Hour
	if err := send(t, connect(t), &azservicebus.Message{Body: []byte("one coffee"), TimeToLive: &hour}); err != nil {
		t.Fatal(err)
	}
	control(t, "POST", "clock", `{"advance": "2h"}`)
	defer control(t, "POST", "clock", `{"offset": "0s"}`)
	if dead := control(t, "GET", "messages/orders/$DeadLetterQueue", ""); !strings.Contains(dead, "TTLExpiredException") {
		t.Errorf("dead letters: %s, want the order", dead)
	}
}

func TestFullQueueIsAnError(t *testing.T) {
	client := connect(t)
	control(t, "POST", "faults", `{"entity": "orders", "operation": "send", "error": "full", "times": 1}`)
	if err := send(t, client, &azservicebus.Message{}); err == nil {
		t.Error("sent to a full queue, want an error")
	}
	if err := send(t, client, &azservicebus.Message{}); err != nil {
		t.Errorf("after the fault: %v", err)
	}
	control(t, "POST", "reset", "")
}
