// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/httpclient"
)

// parallelSenders is how many clients send in parallel.
const parallelSenders = 16

// A sender sends once, and returns the number of messages.
type sender func(ctx context.Context) (int, error)

// A clientKind is one kind of client. It opens clients to a queue at an address.
type clientKind struct {
	name string
	open func(ctx context.Context, address, queue string, size int) (senders []sender,
		shut func(), err error)
}

// Names of the kinds of clients.
const (
	kindBatches = "batches"
	kindSingle  = "single"
	kindOne     = "one"
	kindSpread  = "spread"
	kindREST    = "rest"
)

var clientKinds = []clientKind{
	{kindBatches, sdkClients{senders: parallelSenders, connections: 1}.openBatches},
	{kindSingle, sdkClients{senders: parallelSenders, connections: 1}.open},
	{kindOne, sdkClients{senders: 1, connections: 1}.open},
	{kindSpread, sdkClients{senders: parallelSenders, connections: parallelSenders}.open},
	{kindREST, openREST},
}

// ClientKinds returns the names of all kinds of clients.
func ClientKinds() (names []string) {
	for _, k := range clientKinds {
		names = append(names, k.name)
	}
	return names
}

// sdkClients are senders of the Go SDK on several connections.
type sdkClients struct{ senders, connections int }

// open opens senders of one message at a time.
func (k sdkClients) open(ctx context.Context, address, queue string, size int) ([]sender, func(), error) {
	message := hourlyMessage(size)
	return k.openEach(ctx, address, queue, func(ctx context.Context, s *azservicebus.Sender) (int, error) {
		return 1, s.SendMessage(ctx, message(0), nil)
	})
}

// openBatches opens senders of batches. Each makes a new batch each time, because an app has to
// encode its messages.
func (k sdkClients) openBatches(ctx context.Context, address, queue string, size int) ([]sender, func(), error) {
	message := hourlyMessage(size)
	return k.openEach(ctx, address, queue, func(ctx context.Context, s *azservicebus.Sender) (int, error) {
		return batchSize, sendBatches(ctx, s, 0, batchSize, message)
	})
}

func (k sdkClients) openEach(ctx context.Context, address, queue string,
	send func(context.Context, *azservicebus.Sender) (int, error)) ([]sender, func(), error) {
	links, shut, err := openSenders(ctx, address, slices.Repeat([]string{queue}, k.senders), k.connections)
	if err != nil {
		return nil, nil, err
	}
	senders := make([]sender, len(links))
	for i, s := range links {
		senders[i] = func(ctx context.Context) (int, error) { return send(ctx, s) }
	}
	return senders, shut, nil
}

// hourlyMessage makes messages with a time to live of an hour, which is their deadline on a
// monitored queue. They have no message-id, as in the SDK: the proxy has to make one.
func hourlyMessage(size int) func(int) *azservicebus.Message {
	body, hour := makePayload(size), time.Hour
	return func(int) *azservicebus.Message { return &azservicebus.Message{Body: body, TimeToLive: &hour} }
}

// openREST opens HTTP clients that post the same message.
func openREST(_ context.Context, address, queue string, size int) ([]sender, func(), error) {
	transport := &http.Transport{MaxIdleConnsPerHost: parallelSenders}
	client := httpclient.New(transport, time.Minute)
	url, body := "http://"+address+"/"+queue+"/messages", makePayload(size)
	send := func(ctx context.Context) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("BrokerProperties", `{"TimeToLive":3600}`)
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close() // read
		if err == nil && resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("post a message: %s: %.60q", resp.Status, answer)
		}
		return 1, err
	}
	senders := make([]sender, parallelSenders)
	for i := range senders {
		senders[i] = send
	}
	return senders, transport.CloseIdleConnections, nil
}
