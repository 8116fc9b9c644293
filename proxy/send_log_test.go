// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker"
)

func TestLevelDebugSaysWhatBecameOfEachSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		sc := setup(t, func(s *setting) { s.proxy.Log = zap.New(core) })
		sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s", "BrokerProperties", `{"MessageId":"m1"}`), http.StatusCreated, "")
		sc.want(sc.post("/orders/messages", "hello"), http.StatusCreated, "")
		all := logs.FilterMessage("send accepted").All()
		if len(all) != 2 {
			t.Fatalf("%d lines for two sends: %v", len(all), logs.All())
		}
		first, second := all[0].ContextMap(), all[1].ContextMap()
		if first["message_id"] != "m1" || first["companion"] != "each" || first["stated"] != byWithin || first["work_queue"] != "orders" {
			t.Errorf("a monitored send is logged as %v", first)
		}
		heal := sc.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnSend, Error: broker.EntityFull()})
		sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s", "BrokerProperties", `{"MessageId":"m2"}`), http.StatusForbidden, "")
		heal()
		failed := logs.FilterMessage("send failed").All()
		if len(failed) != 1 || failed[0].ContextMap()["message_id"] != "m2" || failed[0].ContextMap()["error"] == nil {
			t.Errorf("a send that failed is logged as %v, want one line with its id and the error", failed)
		}
		if second["companion"] != "none" || second["deadline"] != nil {
			t.Errorf("a send without a deadline is logged as %v", second)
		}
	})
}
