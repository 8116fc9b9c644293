// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/freeport"
)

// startTest starts the components of `overdue run` on free ports, with text as configuration.
func startTest(t *testing.T, text string) *Process {
	t.Helper()
	c, err := loadText(t, text, map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

func TestStopFinishesTheSendInFlight(t *testing.T) {
	p := startTest(t, "")
	c, err := net.Dial("tcp", p.RestAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Half of a request: the endpoint has it in hand when the stop comes.
	if _, err := io.WriteString(c, "POST /orders/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("the endpoint says %q, %v; want 100 Continue", line, err)
	}
	stopped := make(chan error)
	go func() { stopped <- p.Stop() }()
	eventually(t, "the endpoint is closed", func() bool {
		c, err := net.Dial("tcp", p.RestAddr())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if got := p.life.State(); got != lifecycle.StateDraining {
		t.Errorf("state %s with a send in flight, want %s", got, lifecycle.StateDraining)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := answers.ReadString('\n'); err != nil { // the blank line after 100 Continue
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "201 Created") {
		t.Errorf("the send in flight got %q, %v; want 201 Created", line, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop = %v, want nil", err)
	}
}

func TestAProcessLeavesNothingBehind(t *testing.T) {
	warm := startTest(t, "") // what the runtime and the libraries start once
	if err := warm.Stop(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 5 {
		p := startTest(t, "")
		resp, err := http.Post("http://"+p.RestAddr()+"/orders/messages", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, fmt.Sprintf("no more than %d goroutines", before), func() bool { return runtime.NumGoroutine() <= before })
}

func TestAStartThatFailsGivesItsPortsBack(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	admin := freeport.Address(t)
	c, err := loadText(t, "", map[string]string{
		"OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": admin, "OVERDUE_BROKER_LISTEN": taken.Addr().String(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err == nil || !strings.Contains(err.Error(), "broker.listen: "+taken.Addr().String()+" is in use") {
		t.Errorf("start = %v, want an error that names the port in use", err)
	}
	again, err := net.Listen("tcp", admin)
	if err != nil {
		t.Fatalf("the admin port is still held: %v", err)
	}
	again.Close()
}

func TestAProcessEndsWithTheComponentThatFailed(t *testing.T) {
	p := startTest(t, "")
	p.life.Fail("monitor", errors.New("no such queue"))
	if err := p.wait(context.Background()); err == nil || err.Error() != "monitor: no such queue" {
		t.Errorf("wait = %v, want the failure of the component", err)
	}
	if got := p.life.State(); got != lifecycle.StateStopped {
		t.Errorf("state %s, want %s", got, lifecycle.StateStopped)
	}
}

// Every role says what listens where, and nothing that is secret.
func TestBannerNamesWhatListens(t *testing.T) {
	p := startTest(t, "broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders}]}\n")
	var b strings.Builder
	p.banner(&b)
	for _, want := range []string{
		"http://" + p.RestAddr(), "http://" + p.AdminAddress(), "amqp://" + p.broker.addrs[0], "monitored: orders",
		"AMQP endpoint", "Endpoint=sb://" + p.AMQPAddr(), p.broker.shownConnectionString(),
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	ns, err := connect.Parse("Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=k;SharedAccessKey=s3cr3t")
	if err != nil {
		t.Fatal(err)
	}
	remote := &Process{
		environment: &environment{role: config.RoleMonitor, cfg: &config.Config{Namespace: "x", MonitorQueue: "m"}},
		servers:     adminServers{addr: "127.0.0.1:1"},
		namespace:   &connection{Namespace: ns},
	}
	remote.banner(&b)
	if !strings.Contains(b.String(), "contoso.servicebus.windows.net") || strings.Contains(b.String(), "s3cr3t") {
		t.Errorf("the banner of a namespace:\n%s", b.String())
	}
}

// The embedded broker needs no other server: with nothing configured the process is ready by itself.
func TestTheEmbeddedBrokerIsReadyByItself(t *testing.T) {
	p := startTest(t, "")
	eventually(t, "ready", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://%s/readyz", p.AdminAddress()))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// A stop in the middle of traffic loses nothing that was acknowledged, and no companion.
func TestWhatWasAcknowledgedBeforeAStopIsThere(t *testing.T) {
	space := startTest(t, "broker: {autoCreate: true}\n") // only its broker is used here
	c, err := loadText(t, "", map[string]string{
		"OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0",
		"OVERDUE_NAMESPACE": space.broker.shownConnectionString(), "OVERDUE_COMPANIONS": "each", // which are counted
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Companions stay where they can be counted: the broker knows of no monitor
	// queue of this name, so it makes one, and nobody receives from it.
	c.MonitorQueue = "companions"
	p, err := Start(t.Context(), config.RoleProxy, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Int64
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for {
				req, err := http.NewRequest(http.MethodPost, "http://"+p.RestAddr()+"/orders/messages", strings.NewReader("hello"))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("BrokerProperties", `{"TimeToLive": 3600}`)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return // the endpoint is closed
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusCreated {
					acknowledged.Add(1)
				}
			}
		})
	}
	eventually(t, "some traffic", func() bool { return acknowledged.Load() > 200 })
	if err := p.Stop(); err != nil {
		t.Errorf("stop = %v, want nil", err)
	}
	senders.Wait()
	orders, _ := space.broker.Queue("orders")
	companions, _ := space.broker.Queue("companions")
	references := 0
	for _, v := range brokertest.Seen(companions.Peek(nil, 0, 100_000)) {
		references += strings.Count(string(v.Body), `"messageId"`)
	}
	if got, want := orders.Counts().Active, int(acknowledged.Load()); got < want || references < want {
		t.Errorf("%d messages and %d references in companions, want at least the %d that were acknowledged", got, references, want)
	}
}

// Drop-in: the app changes its connection string, and nothing else.
func TestAnAppNeedsOnlyAnotherConnectionString(t *testing.T) {
	p := startTest(t, "")
	client, err := azservicebus.NewClientFromConnectionString(config.ConnectionString(p.AMQPAddr(), "app", "any"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	ttl := 100 * time.Millisecond
	if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x"), TimeToLive: &ttl}, nil); err != nil {
		t.Fatal(err)
	}
	q, ok := p.broker.Queue("orders")
	if !ok {
		t.Fatal("the message has not come to its queue")
	}
	eventually(t, "dead-lettered with nobody receiving", func() bool { return q.Counts().DeadLetter == 1 })
	received, err := client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	ms, err := received.ReceiveMessages(t.Context(), 1, nil)
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "x" {
		t.Errorf("ReceiveMessages through the endpoint = %d messages, %v; want the one that was sent", len(ms), err)
	}
}
