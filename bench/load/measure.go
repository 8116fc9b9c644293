// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var payload = bytes.Repeat([]byte("x"), 256)

// starts measures the time from the start to ready.
func (l *load) starts(ctx context.Context) error {
	var times []time.Duration
	for range 10 {
		p, err := l.start(ctx, "")
		if err != nil {
			return err
		}
		times = append(times, p.ready)
		if err := p.stop(); err != nil {
			return err
		}
	}
	slices.Sort(times)
	row("start to ready, median and worst of 10", "%v, %v", times[5].Round(time.Millisecond), times[9].Round(time.Millisecond))
	return nil
}

// sends measures throughput, all kinds in one process and one run.
func (l *load) sends(ctx context.Context) error {
	p, err := l.start(ctx, "")
	if err != nil {
		return err
	}
	client, err := p.client()
	if err != nil {
		return errors.Join(err, p.stop())
	}
	sender, err := client.NewSender("unmonitored", nil)
	if err != nil {
		return errors.Join(err, p.stop())
	}
	hour := time.Hour
	direct := func(ctx context.Context) error {
		return sender.SendMessage(ctx, &azservicebus.Message{Body: payload, TimeToLive: &hour}, nil)
	}
	door := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	rest := func(queue string) func(context.Context) error {
		return func(ctx context.Context) error {
			return post(ctx, door, p.door, queue, `{"TimeToLive":3600}`, "", payload)
		}
	}
	for _, clients := range []int{1, 32} {
		for _, kind := range []struct {
			name string
			send func(context.Context) error
		}{{"SDK, direct to the broker", direct}, {"REST door, unmonitored", rest("unmonitored")}, {"REST door, monitored", rest("orders")}} {
			rate, err := l.rate(ctx, clients, kind.send)
			if err != nil {
				return errors.Join(err, p.stop())
			}
			row(fmt.Sprintf("sends/s, 256 bytes, %d at once: %s", clients, kind.name), "%.0f", rate)
		}
	}
	return errors.Join(client.Close(ctx), p.stop())
}

// rate runs send from several goroutines for a while and returns sends per second.
func (l *load) rate(ctx context.Context, clients int, send func(context.Context) error) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := send(ctx); err != nil { // opens the links
		return 0, err
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(began) < l.span && ctx.Err() == nil {
				if err := send(ctx); err != nil {
					cancel(err)
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

// lag measures how late deadlines are honoured that fall due uniformly between 5 and 15 s,
// with nobody consuming, as the events tell it.
func (l *load) lag(ctx context.Context) error {
	var mu sync.Mutex
	var lags []int64
	told := map[string]int{}
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct {
			ID   string
			Data struct{ LagMs int64 }
		}
		if json.NewDecoder(r.Body).Decode(&e) == nil {
			mu.Lock()
			lags = append(lags, e.Data.LagMs)
			told[e.ID]++
			mu.Unlock()
		}
	}))
	defer sink.Close()
	p, err := l.start(ctx, sink.URL)
	if err != nil {
		return err
	}
	began := time.Now()
	err = l.fill(ctx, p, l.outstanding, func() float64 { return 5 + 10*rand.Float64() })
	if err != nil {
		return errors.Join(err, p.stop())
	}
	row(fmt.Sprintf("sending %d in batches of 100 through the door", l.outstanding), "%v", time.Since(began).Round(10*time.Millisecond))
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		n := len(told)
		mu.Unlock()
		if n == l.outstanding {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(lags)
	if len(told) != l.outstanding || len(lags) != l.outstanding {
		return errors.Join(fmt.Errorf("%d events about %d messages, want one for each of %d", len(lags), len(told), l.outstanding), p.stop())
	}
	row(fmt.Sprintf("lag with %d outstanding, due in 5–15 s: p50, p99, max", l.outstanding), "%d, %d, %d ms",
		lags[len(lags)/2], lags[len(lags)*99/100], lags[len(lags)-1])
	return p.stop()
}

// memory measures the resident memory of proxy, monitor and broker in one process.
func (l *load) memory(ctx context.Context) error {
	p, err := l.start(ctx, "")
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	idle, err := p.resident()
	if err != nil {
		return errors.Join(err, p.stop())
	}
	row("resident memory of run, idle", "%.1f MiB", idle)
	if err := l.fill(ctx, p, l.waiting, func() float64 { return 3600 }); err != nil {
		return errors.Join(err, p.stop())
	}
	time.Sleep(10 * time.Second) // for the garbage to be collected and given back
	full, err := p.resident()
	if err != nil {
		return errors.Join(err, p.stop())
	}
	row(fmt.Sprintf("resident memory of run, %d messages of 256 bytes waiting", l.waiting), "%.1f MiB", full)
	return p.stop()
}

// fill sends n monitored messages in batches of 100, from 8 clients.
func (l *load) fill(ctx context.Context, p *process, n int, ttl func() float64) error {
	const size = 100
	door := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for first := range batches {
				var body strings.Builder
				for i := first; i < min(first+size, n); i++ {
					fmt.Fprintf(&body, `,{"Body":%q,"BrokerProperties":{"MessageId":"m-%d","TimeToLive":%.3f}}`, payload, i, ttl())
				}
				if err := post(ctx, door, p.door, "orders", "", "application/vnd.microsoft.servicebus.json", []byte("["+body.String()[1:]+"]")); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n; i += size {
		batches <- i
	}
	close(batches)
	wg.Wait()
	return context.Cause(ctx)
}

func post(ctx context.Context, c *http.Client, door, queue, properties, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+door+"/"+queue+"/messages", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if properties != "" {
		req.Header.Set("BrokerProperties", properties)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the door answered %s: %s", resp.Status, answer)
	}
	return err
}
