// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"net/http"
	"testing"
	"testing/synctest"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/httpapitest"
	"overdue/internal/testing/racetest"
)

var expiries = map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}

func TestEmbeddedBrokerOnFakeTime(t *testing.T) {
	for name, expiry := range expiries {
		if racetest.Enabled && expiry != queue.Eager {
			continue // it changes when messages expire, not what goroutines share
		}
		t.Run(name, func(t *testing.T) {
			Run(t, synctest.Test, func(t *testing.T) *Target {
				secured := expiry == queue.Eager // once in fake time
				ns := brokertest.New(t, func(c *broker.Config) {
					if c.AutoCreate, c.Expiry = false, expiry; secured {
						c.Keys = []broker.AuthorizationRule{brokertest.Key()}
					}
				})
				target := Embedded(ns)
				target.HTTP, target.Secured, target.Expiry = (&http.Client{Transport: httpapitest.Transport(t, ns.Broker)}).Do, secured, expiry
				return target
			})
		})
	}
}
