// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/config"
	"overdue/internal/testing/redistest"
)

// Two keys of a namespace, of which apps and Overdue use one at a time.
const (
	primaryKey   = "{name: primary, key: s3cr3t-of-12-a, manage: true}"
	secondaryKey = "{name: secondary, key: s3cr3t-of-12-b, manage: true}"
)

func keysOfBroker(keys ...string) string {
	return "broker: {queues: [{name: orders}], keys: [" + strings.Join(keys, ", ") + "]}\n...\n"
}

// The order of a rotation: the other key to Overdue, then the former one is deleted.
func TestAKeyOfTheNamespaceIsReplacedByReload(t *testing.T) {
	ns, changeNamespace := reloaded(t, keysOfBroker(primaryKey, secondaryKey))
	file := filepath.Join(t.TempDir(), "namespace")
	write := func(name, key string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(config.ConnectionString(ns.broker.addrs[0], name, key)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("primary", "s3cr3t-of-12-a")
	settings := "namespaceFile: " + file + "\n"
	p, adopt := reloaded(t, settings)
	p.isReady(t)
	send := func(when string) {
		t.Helper()
		if status := postDue(t, p, when); status != http.StatusCreated {
			t.Errorf("a send %s = %d, want 201", when, status)
		}
	}
	send("at first")

	write("primary", "s3cr3t-of-12-wrong")
	_, _, err := adopt(settings)
	if !errors.As(err, new(notAccepted)) || !strings.Contains(err.Error(), "refuses access") {
		t.Errorf("a wrong key: %v, want the refusal of the namespace, to be tried again", err)
	}
	if strings.Contains(fmt.Sprint(err), "s3cr3t") {
		t.Errorf("the key is shown: %v", err)
	}
	send("while the new key is wrong")

	write("secondary", "s3cr3t-of-12-b")
	changed, restart, err := adopt(settings)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"namespace has other credentials"}, changed); diff != "" || len(restart) > 0 {
		t.Errorf("changed (-want +got):\n%sneeds a restart: %q", diff, restart)
	}
	if _, _, err := changeNamespace(keysOfBroker(secondaryKey)); err != nil {
		t.Fatal(err)
	}
	send("after the former key is deleted")
	if err := p.UntilReady(t.Context()); err != nil {
		t.Errorf("not ready after the rotation: %v", err)
	}
	if _, done, err := p.actionSender(t.Context(), "orders"); err != nil {
		t.Errorf("an action of the dashboard = %v, want nil", err)
	} else {
		done()
	}
}

func TestAnotherNamespaceWaitsForARestart(t *testing.T) {
	ns, _ := reloaded(t, keysOfBroker(primaryKey))
	text := "namespace: " + config.ConnectionString(ns.broker.addrs[0], "primary", "s3cr3t-of-12-a") + "\n"
	p, adopt := reloaded(t, text)
	_, restart, err := adopt("namespace: contoso.servicebus.windows.net\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"namespace"}, restart); diff != "" {
		t.Errorf("needs a restart (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(p.current().Namespace, "Endpoint=") {
		t.Error("another namespace is said to be in force")
	}
}

// Companions are in Redis, and outlive a change of its password.
func TestAPasswordOfRedisIsReplacedByReload(t *testing.T) {
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Must("ACL", "SETUSER", "overdue", "on", ">former", "~*", "&*", "+@all")
	file := filepath.Join(t.TempDir(), "redis")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("redis://overdue:"+password+"@"+r.Addr), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("former")
	text := "companionStore: redis\nredisFile: " + file + "\n" + reloadQueues
	p, adopt := reloaded(t, text)
	p.isReady(t)
	send := func(when string) {
		t.Helper()
		if status := postDue(t, p, when); status != http.StatusCreated {
			t.Errorf("a send %s = %d, want 201", when, status)
		}
	}
	send("at first")

	write("wrong")
	if _, _, err := adopt(text); !errors.As(err, new(notAccepted)) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v, want the refusal of Redis, to be tried again", err)
	}
	r.Must("ACL", "SETUSER", "overdue", ">latter")
	write("latter")
	changed, restart, err := adopt(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"redis has other credentials"}, changed); diff != "" || len(restart) > 0 {
		t.Errorf("changed (-want +got):\n%sneeds a restart: %q", diff, restart)
	}
	r.Must("ACL", "SETUSER", "overdue", "<former")
	send("after the former password is deleted")
	r.Must("CLIENT", "KILL", "USER", "overdue") // connections that are made now need the other one
	eventually(t, "sends go on over other connections", func() bool { return postDue(t, p, "later") == http.StatusCreated })
	eventually(t, "all three companions are there", func() bool {
		kept, err := p.shared.Companions().Counts(t.Context())
		return err == nil && kept.Waiting >= 3 // a send that was cut off may have written one, too
	})
}

func TestAnotherRedisWaitsForARestart(t *testing.T) {
	p, adopt := reloaded(t, "redis: redis://:s3cr3t@127.0.0.1:1\n"+reloadQueues)
	_, restart, err := adopt("redis: redis://:s3cr3t@127.0.0.1:2\n" + reloadQueues)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"redis"}, restart); diff != "" {
		t.Errorf("needs a restart (-want +got):\n%s", diff)
	}
	if hosts := p.current().RedisAddress.Hosts; hosts[0] != "127.0.0.1:1" {
		t.Errorf("%q is said to be in force", hosts)
	}
}

func TestTheTokenOfTheDashboardIsReplacedByReload(t *testing.T) {
	p, adopt := reloaded(t, "dashboard: {token: s3cr3t-of-sixteen-a}\n"+reloadQueues)
	changed, restart, err := adopt("dashboard: {token: s3cr3t-of-sixteen-b}\n" + reloadQueues)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dashboard.token has changed"}, changed); diff != "" || len(restart) > 0 {
		t.Errorf("changed (-want +got):\n%sneeds a restart: %q", diff, restart)
	}
	if got := p.current().Dashboard.Token; got != "s3cr3t-of-sixteen-b" {
		t.Errorf("the token in force is %q, want the other one", got)
	}
	// The pages without a token have no actions at all.
	if _, restart, err = adopt(reloadQueues); err != nil || !slices.Equal(restart, []string{"dashboard.token"}) {
		t.Errorf("without a token: needs a restart %q, %v; want the token", restart, err)
	}
}
