// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// withNamespaces is a broker whose configuration has three.
func withNamespaces(c *broker.Config) {
	c.AutoCreate = false
	c.DefaultName = "First"
	c.Queues = []broker.QueueConfig{{Name: "mine"}, {Name: "first"}}
	c.Namespaces = []broker.NamespaceSetup{
		{Name: "Second", Queues: []broker.QueueConfig{{Name: "mine"}, {Name: "second"}}},
		{Name: "third-ns", Queues: []broker.QueueConfig{{Name: "mine"}}},
	}
}

func TestNamespacesOfTheConfigurationAnswerToTheirNames(t *testing.T) {
	for name, x := range map[string]struct{ host, key, want string }{
		"nobody":                    {"localhost", keyName, ""},
		"the key of the first":      {"localhost", "first", ""},
		"the host of the first":     {"first.localhost", keyName, ""},
		"the key of another":        {"localhost", "SECOND", "second"},
		"the host of another":       {"second.localhost:5672", keyName, "second"},
		"a container of that name":  {"third-ns", keyName, "third-ns"},
		"a host in Azure":           {"third-ns.servicebus.windows.net", keyName, "third-ns"},
		"key before host":           {"third-ns", "second", "second"},
		"a name that nobody has":    {"localhost", "fourth", ""},
		"a host that nobody has":    {"fourth.localhost", keyName, ""},
		"the first before a host":   {"third-ns", "first", ""},
		"an address, and no labels": {"127.0.0.1", keyName, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := brokertest.New(t, withNamespaces)
				c, err := connect(t, ns, &amqp.ConnOptions{HostName: x.host, SASLType: amqp.SASLTypeAnonymous()})
				if err != nil {
					t.Fatal(err)
				}
				c.sas(x.key, "any", "mine", time.Hour)
				if err := c.send("mine"); err != nil {
					t.Fatal(err)
				}
				q, err := ns.Broker.Namespace(x.want).QueueInfo("mine")
				if err != nil || q.Counts.Active != 1 {
					t.Errorf("the namespace %q has %v active messages, %v, want 1", x.want, q.Counts.Active, err)
				}
			})
		})
	}
}

func TestNamespacesHaveTheirOwnEntitiesAfterAReset(t *testing.T) {
	ns := brokertest.New(t, withNamespaces)
	for name, want := range map[string][]string{"": {"first", "mine"}, "second": {"mine", "second"}, "third-ns": {"mine"}, "first": {"first", "mine"}} {
		n := ns.Broker.Namespace(name)
		if err := n.Reset(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, queues(n)); diff != "" {
			t.Errorf("queues of %q (-want +got):\n%s", name, diff)
		}
	}
}

// New entities are made. Those that exist stay as they are, since clients use them.
func TestAConfigurationIsTakenUpAsFarAsItAddsEntities(t *testing.T) {
	topic := func(name string, subscriptions ...string) broker.TopicSetup {
		setup := broker.TopicSetup{TopicConfig: broker.TopicConfig{Name: name}}
		for _, s := range subscriptions {
			setup.Subscriptions = append(setup.Subscriptions, broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{Name: s}})
		}
		return setup
	}
	cfg := broker.Config{
		Queues: []broker.QueueConfig{{Name: "same"}, {Name: "other"}, {Name: "gone"}, {Name: "deleted"}},
		Topics: []broker.TopicSetup{topic("events", "audit", "bills")},
	}
	ns := brokertest.New(t, func(c *broker.Config) {
		c.AutoCreate = false
		c.Queues, c.Topics = cfg.Queues, cfg.Topics
	})
	b := ns.Broker
	if err := b.Default().DeleteQueue("deleted"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Default().UpdateQueue(broker.QueueConfig{Name: "same", MaxDeliveryCount: 3}); err != nil {
		t.Fatal(err)
	}
	cfg.Queues = []broker.QueueConfig{{Name: "same"}, {Name: "other", LockDuration: 30 * time.Second}, {Name: "deleted"}, {Name: "new", ForwardTo: "newer"}, {Name: "newer"}}
	cfg.Topics = []broker.TopicSetup{topic("events", "audit", "mail")}
	cfg.Namespaces = []broker.NamespaceSetup{{Name: "tenant", Queues: []broker.QueueConfig{{Name: "theirs"}}}}
	made, differences, err := b.Reconfigure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"queue new is new", "queue newer is new", "subscription events/Subscriptions/mail is new", "namespace tenant: queue theirs is new"}, made); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	want := []string{
		"queue other: lockDuration is 1m0s in force and 30s in the configuration",
		"queue gone is not in the configuration any more",
		"subscription events/Subscriptions/bills is not in the configuration any more",
	}
	if diff := cmp.Diff(want, differences); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	if got := queues(b.Default()); !slices.Equal(got, []string{"gone", "new", "newer", "other", "same"}) {
		t.Errorf("queues = %q: what a client deleted stays so, and what is gone from the configuration stays", got)
	}
	if got := queues(b.Namespace("tenant")); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("queues of the new namespace = %q", got)
	}
	// A wrong one changes nothing.
	cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: "right"}, broker.QueueConfig{Name: "a b"})
	if _, _, err := b.Reconfigure(cfg); !errors.Is(err, broker.ErrInvalidConfig) {
		t.Errorf("a queue without a valid name: %v, want ErrInvalidConfig", err)
	}
	if _, err := b.Default().QueueInfo("right"); !errors.Is(err, broker.ErrEntityNotFound) {
		t.Errorf("a queue of a wrong configuration: %v, want none", err)
	}
	// A namespace that is gone from it answers as before.
	cfg.Queues, cfg.Namespaces = cfg.Queues[:5], nil
	if _, differences, err := b.Reconfigure(cfg); err != nil || !slices.Equal(differences, []string{"namespace tenant is not in the configuration any more"}) {
		t.Errorf("differences = %q, %v", differences, err)
	}
	if got := queues(b.Namespace("tenant")); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("queues of the namespace that is gone = %q", got)
	}
}
