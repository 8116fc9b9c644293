// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker"
	"overdue/internal/config"
)

// startLogged starts a broker with two entities, and returns how to reach it and its log.
func startLogged(t *testing.T, level zapcore.Level) (*azservicebus.Client, string, *observer.ObservedLogs) {
	t.Helper()
	c, err := loadText(t, "broker: {autoCreate: false, queues: [{name: orders}], topics: [{name: events, subscriptions: [{name: audit}]}]}\n",
		map[string]string{"OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(level)
	p, err := Start(t.Context(), config.RoleBroker, c, zap.New(core), zap.NewAtomicLevelAt(level))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	client, err := azservicebus.NewClientFromConnectionString(p.OwnConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) }) // the broker may be gone
	return client, p.broker.addrs[0], logs
}

func send(t *testing.T, client *azservicebus.Client, to string) error {
	t.Helper()
	sender, err := client.NewSender(to, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close(t.Context()) }()
	return sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
}

// warnings are the messages of all warnings that concern clients.
func warnings(logs *observer.ObservedLogs) (all []string) {
	for _, e := range logs.FilterLevelExact(zap.WarnLevel).All() {
		if strings.Contains(e.Message, "client") {
			all = append(all, e.Message)
		}
	}
	return all
}

func TestANameThatDoesNotExistIsWarnedOfOnceWithTheNearest(t *testing.T) {
	client, _, logs := startLogged(t, zap.InfoLevel)
	for _, name := range []string{"order", "ORDER", "order", "events/Subscriptions/audits", "nothing-like-it"} {
		if err := send(t, client, name); err == nil {
			t.Fatalf("a send to %s succeeds", name)
		}
	}
	got := warnings(logs)
	want := []string{`"order"`, `did you mean "orders"?`, `did you mean "events/Subscriptions/audit"?`, `"nothing-like-it"`, "GET /_overdue/entities"}
	all := strings.Join(got, "\n")
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("the warnings lack %s:\n%s", w, all)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d warnings, want one for each of three names:\n%s", len(got), all)
	}
}

func TestTLSOnAPlainPortIsWarnedOfOnce(t *testing.T) {
	_, addr, logs := startLogged(t, zap.InfoLevel)
	for range 3 {
		if _, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}); err == nil { //nolint:gosec // it has no certificate
			t.Fatal("the plain port speaks TLS")
		}
	}
	eventually(t, "a warning", func() bool { return len(warnings(logs)) > 0 })
	if got := warnings(logs); len(got) != 1 || !strings.Contains(got[0], "UseDevelopmentEmulator=true") || !strings.Contains(got[0], "--broker-tls-enabled") {
		t.Errorf("warnings = %q, want one that says what to do", got)
	}
}

func TestStrangersCannotFillTheLog(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	core, logs := observer.New(zap.InfoLevel)
	l := &clientLog{log: zap.New(core)}
	b.Watch(l.note)
	_, refusal := b.Default().Target("missing")
	for i := range 1000 {
		b.Note(broker.Activity{
			Operation: broker.OnAttach,
			Namespace: b.Default(),
			Path:      fmt.Sprint("q", i, strings.Repeat("\n", 1000)),
			Client:    &net.TCPAddr{},
			Refusal:   refusal,
		})
	}
	got := warnings(logs)
	if len(got) != maxCauses+1 {
		t.Errorf("%d warnings, want %d and one that says that there are no more", len(got), maxCauses)
	}
	for _, line := range got {
		if len(line) > 300 || strings.Contains(line, "\n") {
			t.Errorf("a warning is %q", line)
		}
	}
}

func TestWhatClientsDoIsLoggedAtLevelDebug(t *testing.T) {
	client, _, logs := startLogged(t, zap.DebugLevel)
	if err := send(t, client, "orders"); err != nil {
		t.Fatal(err)
	}
	r, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := r.ReceiveMessages(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CompleteMessage(t.Context(), ms[0], nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ text, key, value string }{
		{"client puts a token", "path", "orders"},
		{"client attaches a link", "role", "sender"},
		{"client sends", "path", "orders"},
		{"client receives", "path", "orders"},
		{"client settles", "outcome", "complete"},
	} {
		found := false
		for _, e := range logs.FilterMessage(want.text).All() {
			fields := e.ContextMap()
			found = found || strings.Contains(fmt.Sprint(fields[want.key]), want.value) && fields["client"] != ""
		}
		if !found {
			t.Errorf("no line %q with %s %s among %v", want.text, want.key, want.value, logs.FilterMessage(want.text).All())
		}
	}
}
