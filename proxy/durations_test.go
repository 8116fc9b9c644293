// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// histogram returns the count and the sum of a series.
func (sc *scene) histogram(name, endpoint, monitored string) (n uint64, sum time.Duration) {
	sc.Helper()
	families, err := sc.registry.Gather()
	if err != nil {
		sc.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["endpoint"] == endpoint && labels["monitored"] == monitored {
				return m.GetHistogram().GetSampleCount(), time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second)).Round(time.Millisecond)
			}
		}
	}
	sc.Fatalf("no series %s of %s, monitored %s", name, endpoint, monitored)
	return 0, 0
}

// The app waits for the settings of the entity, which take three seconds, and the namespace answers
// at once.
func TestDurationsSeparateTheProxyFromTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.Settings = func(string) Settings { return Settings{Unknown: true} }
			s.proxy.Learn = func(ctx context.Context, _ string) (Settings, error) {
				time.Sleep(3 * time.Second)
				return Settings{Monitored: true}, nil
			}
		})
		life := time.Minute
		sender := sc.sender("orders")
		for _, m := range []*azservicebus.Message{{Body: []byte("a"), TimeToLive: &life}, {Body: []byte("b"), TimeToLive: &life}, {Body: []byte("c")}} {
			if err := sender.SendMessage(t.Context(), m, nil); err != nil {
				t.Fatal(err)
			}
		}
		sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s"), http.StatusCreated, "")
		for _, want := range []struct {
			endpoint, monitored string
			n                   uint64
		}{{endpointAMQP, "true", 2}, {endpointAMQP, "false", 1}, {endpointREST, "true", 1}, {endpointREST, "false", 0}} {
			n, waited := sc.histogram("overdue_send_duration_seconds", want.endpoint, want.monitored)
			if all := time.Duration(want.n) * 3 * time.Second; n != want.n || waited != all {
				t.Errorf("%s, monitored %s: %d sends waited %v, want %d and %v", want.endpoint, want.monitored, n, waited, want.n, all)
			}
			if n, took := sc.histogram("overdue_send_upstream_seconds", want.endpoint, want.monitored); n != want.n || took != 0 {
				t.Errorf("%s, monitored %s: %d sends took %v upstream, want %d and 0", want.endpoint, want.monitored, n, took, want.n)
			}
		}
	})
}

func TestASendThatWaitsForAPlaceIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		sc := setup(t, func(s *setting) {
			s.proxy.MaxInFlight = 1
			s.proxy.Settings = func(string) Settings { return Settings{Monitored: true} }
		})
		gauge := func(name string) float64 {
			families, err := sc.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == name {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			t.Fatalf("no series %s", name)
			return 0
		}
		if err := sc.proxy.sends.enter(t.Context()); err != nil { // as a send in flight does
			t.Fatal(err)
		}
		go func() {
			defer close(ended)
			sc.want(sc.post("/orders/messages", "hello", "overdue-within", "30s"), http.StatusCreated, "")
		}()
		synctest.Wait()
		if inFlight, queued := gauge("overdue_sends_in_flight"), gauge("overdue_sends_queued"); inFlight != 1 || queued != 1 {
			t.Errorf("%v in flight and %v queued, want 1 and 1", inFlight, queued)
		}
		sc.proxy.sends.leave()
		<-ended
		if inFlight, queued := gauge("overdue_sends_in_flight"), gauge("overdue_sends_queued"); inFlight != 0 || queued != 0 {
			t.Errorf("%v in flight and %v queued, want none", inFlight, queued)
		}
	})
}
