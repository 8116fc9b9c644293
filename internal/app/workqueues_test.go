// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// No deadline comes due, so no check of a message would find it.
func TestAWorkQueueThatIsDeletedIsNoticedWithoutTraffic(t *testing.T) {
	c, err := loadText(t, "namespace: \""+config.ConnectionString("broker.test:5672", config.AnyKeyName, config.AnyKey)+
		"\"\nmonitor: {entities: [{queue: orders}, {topic: events}, {queue: short}]}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		space := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{{Name: "orders"}, {Name: "short", AutoDeleteOnIdle: 5 * time.Minute}}
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}}}
		})
		space.Broker.Watch(func(a broker.Activity) {
			if strings.HasPrefix(a.Path, "short") {
				t.Errorf("%s: a queue that deletes itself when it is idle is touched", a.Path)
			}
		})
		e := newEnvironment(config.RoleMonitor, c, zap.NewNop(), zap.NewAtomicLevel())
		watchWorkQueues(e, space.Links(t), catalog.NewEmbeddedSource(space.Broker, false).Read)
		shows := func(when string, orders, events string) {
			t.Helper()
			time.Sleep(35 * time.Second) // fake: one interval, and an answer
			synctest.Wait()
			_, page := askAdmin(e.admin, "GET", "/metrics", "")
			for name, value := range map[string]string{"orders": orders, "events": events} {
				if want := `overdue_entity_missing{entity="` + name + `",servicebus_namespace="broker.test:5672"} ` + value; !strings.Contains(page, want) {
					t.Errorf("%s: GET /metrics lacks %s", when, want)
				}
			}
		}
		shows("both are there", "0", "0")
		if err := space.Broker.Default().DeleteQueue("orders"); err != nil {
			t.Fatal(err)
		}
		shows("orders is deleted", "1", "0")
		space.Net.Stall(pipenet.Both)
		shows("the namespace does not answer", "1", "0")
		space.Net.Resume(pipenet.Both)
		if err := space.Broker.AddQueue(broker.QueueConfig{Name: "orders"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // fake: until the connection is made again
		shows("orders is there again", "0", "0")
		e.life.Hurry()
		if err := e.life.Drain(); err != nil {
			t.Error(err)
		}
	})
}

func TestNobodyLooksForQueuesThatExistWhenTheyAreNamed(t *testing.T) {
	p := startRole(t, config.RoleRun, "broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders}]}\n")
	if _, page := askAdmin(p.admin, "GET", "/metrics", ""); strings.Contains(page, "overdue_entity_missing") {
		t.Error("a queue that is made on demand can be missing")
	}
}
