// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// demoSenders is how many messages of a queue are under way at once.
const demoSenders = 8

// ttl of the i-th message. Neighbours differ: in both queues messages with little time
// left stand behind others with much.
func (d *demo) ttl(i int) time.Duration {
	const prime = 7919
	place := i * prime % d.n
	return d.timing.firstTTL + (d.timing.lastTTL-d.timing.firstTTL)*time.Duration(place)/time.Duration(max(1, d.n-1))
}

// sendAll sends the same messages to both queues and shows them filling.
func (d *demo) sendAll(ctx context.Context) error {
	sending, stop := context.WithTimeout(ctx, d.timing.sending)
	defer stop()
	sender, err := d.client.NewSender(demoLazy, nil)
	if err != nil {
		return fmt.Errorf("sender for %s: %w", demoLazy, err)
	}
	done := make(chan error, 1)
	go func() {
		// The one link of the SDK's sender exists before eight goroutines ask for it.
		first := d.sendLazy(sending, sender, 0)
		g, ctx := errgroup.WithContext(sending)
		g.SetLimit(2 * demoSenders)
		for i := range d.n {
			g.Go(func() error { return d.sendEager(ctx, i) })
			if i > 0 {
				g.Go(func() error { return d.sendLazy(ctx, sender, i) })
			}
		}
		done <- errors.Join(first, g.Wait(), sender.Close(context.WithoutCancel(sending)))
	}()
	var sendErr error
	sent := false
	err = d.watchUntil(ctx, time.Now().Add(d.timing.sending), func() bool {
		select {
		case sendErr = <-done:
			sent = true
		default:
		}
		return sent
	})
	if !sent {
		stop()
		sendErr = <-done
	}
	if err != nil {
		return err
	}
	return sendErr
}

// sendEager goes through Overdue: an HTTP request as the Service Bus REST API has it.
func (d *demo) sendEager(ctx context.Context, i int) error {
	url := fmt.Sprintf("http://%s/%s/messages", d.proc.RestAddr(), demoEager)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("hello"))
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	req.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":"message-%d","TimeToLive":%.3f}`, i, d.ttl(i).Seconds()))
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("send to %s: %s: %s", demoEager, resp.Status, body)
	}
	return nil
}

// sendLazy goes to the broker directly, with the SDK.
func (d *demo) sendLazy(ctx context.Context, sender *azservicebus.Sender, i int) error {
	err := sender.SendMessage(ctx, &azservicebus.Message{
		Body: []byte("hello"), MessageID: to.Ptr(fmt.Sprintf("message-%d", i)), TimeToLive: to.Ptr(d.ttl(i)),
	}, nil)
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoLazy, err)
	}
	return nil
}
