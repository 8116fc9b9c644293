// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// Names of queues may have slashes: orders/eu is no part of orders.
func TestTheKeyOfAnEntityOpensNoOtherBelowItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys())
		n := ns.Broker.Default()
		own := []broker.AuthorizationRule{{KeyName: "own", PrimaryKey: "own key", Send: true, Listen: true}}
		for _, q := range []broker.QueueConfig{{Name: "orders", AuthorizationRules: own}, {Name: "orders/eu"}} {
			if _, err := n.CreateQueue(q); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.CreateTopic(broker.TopicConfig{Name: "t", AuthorizationRules: own}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.CreateSubscription("t", broker.SubscriptionConfig{Name: "s"}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, ns)
		c.sas("own", "own key", "orders", time.Hour)
		c.sas("own", "own key", "t", time.Hour)
		if err := c.send("orders"); err != nil {
			t.Errorf("send to the entity of the key = %v, want nil", err)
		}
		wantUnauthorized(t, c.send("orders/eu"), "Unauthorized access. 'Send' claim(s) are required")
		for _, path := range []string{"orders/$deadletterqueue", "t/Subscriptions/s", "T/subscriptions/S/$DeadLetterQueue"} {
			if _, err := c.session.NewReceiver(t.Context(), path, nil); err != nil {
				t.Errorf("receive from %s, of the entity of the key = %v, want nil", path, err)
			}
		}
		_, err := c.session.NewReceiver(t.Context(), "orders/eu", nil)
		wantUnauthorized(t, err, "Unauthorized access. 'Listen' claim(s) are required")
		c.sas(keyName, keyText, "orders", time.Hour) // a key of the namespace is good for all that lies below
		if err := c.send("orders/eu"); err != nil {
			t.Errorf("send with a token of the namespace = %v, want nil", err)
		}
	})
}
