// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/config"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// settings loads a configuration from flags.
func settings(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	c, err := config.Load("", func(string) string { return "" }, flags)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// companions are those on the monitor queue.
func companions(t *testing.T, links *link.Namespace) (all []scheduler.Companion) {
	t.Helper()
	err := dlq.WalkAt(t.Context(), links, "overdue-monitor", 0, func(l *dlq.Letter) bool {
		if scheduler.IsCompanion(l.ContentType, l.Subject) {
			c, err := scheduler.ParseCompanion(l.Body().([]byte))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func send(t *testing.T, c *Connection) {
	t.Helper()
	sender, err := c.Sender.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &azservicebus.Message{MessageID: to.Ptr("m"), TimeToLive: to.Ptr(time.Hour)}
	if err := sender.SendMessage(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAConnectionForReadingDoesNotSend(t *testing.T) {
	c, err := Connect(t.Context(), settings(t, map[string]string{"namespace": namespaceAt(serve(t))}), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Sender != nil || c.SenderLinks != nil {
		t.Error("a connection for reading has a sender")
	}
	if got := companions(t, c.Links); len(got) != 0 {
		t.Errorf("companions %v, want none", got)
	}
}

func TestASenderHasAnEndpointOfItsOwnThatWritesCompanions(t *testing.T) {
	var log bytes.Buffer
	cfg := settings(t, map[string]string{"namespace": namespaceAt(serve(t)), "onMonitorDown": "pass"})
	before := *cfg
	c, err := ConnectSender(t.Context(), cfg, "", &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	defer c.Close()
	send(t, c)
	got := companions(t, c.Links)
	if len(got) != 1 || got[0].Entity != "orders" || got[0].References[0].MessageID != "m" {
		t.Errorf("companions %+v, want that of m in orders", got)
	}
	if cfg.Listen.AMQP != before.Listen.AMQP || cfg.OnMonitorDown != before.OnMonitorDown || len(cfg.Listen.Keys) != 0 {
		t.Error("the endpoint of the command changed the configuration of the caller")
	}
}

func TestAConnectionGoesThroughAnEndpoint(t *testing.T) {
	addr := serve(t)
	own, err := ConnectSender(t.Context(), settings(t, map[string]string{"namespace": namespaceAt(addr)}), "", &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	// The broker itself is an endpoint as good as any: what is sent there arrives.
	for _, tt := range []struct {
		name, fleet string
		flags       map[string]string
	}{
		{"of a namespace", "127.0.0.1:9", map[string]string{"namespace": namespaceAt("127.0.0.1:9")}},
		{"of the embedded broker", "127.0.0.1:5673", nil},
	} {
		c, err := ConnectSender(t.Context(), settings(t, tt.flags), addr, &bytes.Buffer{})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if c.Namespace.Host != addr || c.Fleet != tt.fleet {
			t.Errorf("%s: connected to %s, fleet %s; want %s and %s", tt.name, c.Namespace.Host, c.Fleet, addr, tt.fleet)
		}
		send(t, c)
		c.Close()
	}
	read := 0
	if err := dlq.WalkAt(t.Context(), own.Links, "orders", 0, func(*dlq.Letter) bool { read++; return true }); err != nil || read != 2 {
		t.Errorf("%d messages in orders, %v; want the two that were sent", read, err)
	}
}

func TestAnEndpointThatDoesNotAnswerIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for want, tt := range map[string]struct {
		endpoint string
		flags    map[string]string
		invalid  bool
	}{
		"nothing answers at --endpoint, " + addr:             {addr, nil, false},
		"nothing answers at listen.amqp, " + addr:            {"", map[string]string{"listen.amqp": addr}, false},
		`--endpoint is "localhost"; it must be host:port`:    {"localhost", nil, true},
		`listen.amqp is "127.0.0.1:0"; it must be host:port`: {"", map[string]string{"listen.amqp": "127.0.0.1:0"}, true},
		`--endpoint is "127.0.0.1:0"; it must be host:port`:  {"127.0.0.1:0", map[string]string{"namespace": namespaceAt(addr)}, true},
	} {
		c, err := ConnectSender(t.Context(), settings(t, tt.flags), tt.endpoint, &bytes.Buffer{})
		if err == nil {
			c.Close()
		}
		var invalid *config.Error
		if err == nil || !strings.HasPrefix(err.Error(), want) || errors.As(err, &invalid) != tt.invalid {
			t.Errorf("ConnectSender = %v, want %q, an error of the configuration: %v", err, want, tt.invalid)
		}
	}
}

func TestAnEndpointThatCannotStartIsAnError(t *testing.T) {
	cfg := settings(t, map[string]string{"namespace": namespaceAt(serve(t)), "redis": "redis://127.0.0.1:1", "companionStore": "redis"})
	cfg.MonitorQueue = "none/$DeadLetterQueue/of/anything"
	if c, err := ConnectSender(t.Context(), cfg, "", &bytes.Buffer{}); err == nil {
		c.Close()
		t.Error("ConnectSender = nil, want an error")
	}
}
