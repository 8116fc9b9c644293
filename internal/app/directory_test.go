// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker/queue"
	"overdue/internal/config"
)

// startOn starts a role on a directory. stop ends it.
func startOn(t *testing.T, r config.Role, dir, queues string) (p *Process, logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	c, err := loadText(t, "broker: {directory: "+dir+", queues: ["+queues+"]}\n", freePorts, nil)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	if p, err = Start(t.Context(), r, c, zap.New(core), zap.NewAtomicLevel()); err != nil {
		t.Fatal(err)
	}
	return p, logs, func() {
		t.Helper()
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

func TestTheEmbeddedBrokerComesBackWithItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p, logs, stop := startOn(t, config.RoleRun, dir, "{name: orders, lockDuration: 30s}")
	if status := postDue(t, p, "m1"); status != http.StatusCreated {
		t.Fatalf("send = %d, want 201", status)
	}
	stop()
	for _, line := range logs.All() {
		if strings.Contains(line.Message, "lost") {
			t.Errorf("a stop says %q, and nothing is lost", line.Message)
		}
	}
	p, logs, stop = startOn(t, config.RoleRun, dir, "{name: orders, lockDuration: 45s}")
	defer stop()
	loaded := logs.FilterMessage("the embedded broker has loaded its directory").All()
	if len(loaded) != 1 || loaded[0].ContextMap()["messages"] != int64(2) { // one is its companion
		t.Errorf("the log says %v, want that two messages were loaded", loaded)
	}
	differing := logs.FilterMessageSnippet("not as configured: ").FilterMessageSnippet("orders").FilterLevelExact(zap.WarnLevel).All()
	if len(differing) != 1 {
		t.Errorf("the log says %v, want one line about the lock duration", differing)
	}
	orders, err := p.broker.Default().Inspect("orders")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := orders.Peek(nil, 0, 10); err != nil || len(found) != 1 || found[0].MessageID != "m1" {
		t.Errorf("after a restart there are %v (%v), want m1", found, err)
	}
	var banner strings.Builder
	p.banner(&banner)
	if text := banner.String(); !strings.Contains(text, "\nEntities and messages of the embedded broker are kept in "+dir+".\n") || strings.Contains(text, "lost") {
		t.Errorf("the banner:\n%s", text)
	}
}

func TestStartOnADirectoryThatCannotBeUsedIsOneSentence(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, _, stop := startOn(t, config.RoleBroker, dir, "")
	defer stop()
	c, err := loadText(t, "", freePorts, map[string]string{"broker.directory": dir})
	if err != nil {
		t.Fatal(err)
	}
	misuse := (*config.Error)(nil)
	_, err = Start(t.Context(), config.RoleBroker, c, zap.NewNop(), zap.NewAtomicLevel())
	if want := "--broker-directory: " + dir + " is in use by another process; stop that one, or choose another directory"; err == nil || err.Error() != want || errors.As(err, &misuse) {
		t.Errorf("Start on a directory in use = %v, want the failure %s", err, want)
	}
	c.Broker.Directory = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Broker.Directory, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Start(t.Context(), config.RoleBroker, c, zap.NewNop(), zap.NewAtomicLevel()); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "photo.jpg") {
		t.Errorf("Start on a directory of something else = %v, want an error of the configuration", err)
	}
}

func TestTroubleOfTheDirectoryIsLoggedAtItsBeginAndItsEnd(t *testing.T) {
	p, logs, stop := startOn(t, config.RoleBroker, filepath.Join(t.TempDir(), "data"), "")
	defer stop()
	d := &brokerDirectory{environment: p.environment, path: "data", metrics: newStoreMetrics(newRegistry(config.RoleBroker, embeddedNamespace))}
	p.life.Background("test", d.logTrouble)
	full, failed := queue.ErrNoRoom, fmt.Errorf("%w: %w", queue.ErrNotStored, syscall.EIO)
	for _, step := range []struct {
		err  error
		want string
	}{
		{full, "the disk of data is full: the broker does not start until there is room"},
		{nil, "the broker's directory is written again"},
		{full, "the disk of data is full: what is sent and settled is refused until there is room, messages can still be peeked"},
		{nil, "the broker's directory is written again"},
		{failed, "the disk of data has failed: what is sent and settled is refused until a restart, messages can still be peeked (queue: cannot be stored: input/output error)"},
	} {
		before := logs.Len()
		d.metrics.Troubled(step.err)
		d.metrics.Troubled(step.err) // the same trouble is one line
		eventually(t, step.want, func() bool { return logs.Len() > before })
		line := logs.All()[before]
		if said := fmt.Sprint(line.Message, line.ContextMap()["error"]); !strings.Contains(said, step.want) {
			t.Errorf("the log says %q, want %q", said, step.want)
		}
		d.loaded.Store(step.err == nil || d.loaded.Load()) // once there is room
	}
}
