// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
)

// lateSettings holds the settings of all entities, which become known when known is closed.
type lateSettings struct {
	known chan struct{}
	holds Settings
}

func (k *lateSettings) settings(string) Settings {
	select {
	case <-k.known:
		return k.holds
	default:
		return Settings{Unknown: true}
	}
}

func (k *lateSettings) learn(ctx context.Context, _ string) (Settings, error) {
	select {
	case <-k.known:
		return k.holds, nil
	case <-ctx.Done():
		return Settings{}, context.Cause(ctx)
	}
}

// unknown changes a scene: the settings of its entities are unknown until known is closed.
func unknown(holds Settings) (*lateSettings, func(*setting)) {
	k := &lateSettings{known: make(chan struct{}), holds: holds}
	return k, func(s *setting) { s.proxy.Settings, s.proxy.Learn = k.settings, k.learn }
}

func TestASendWaitsForWhatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, change := unknown(Settings{Monitored: true, DefaultMessageTimeToLive: time.Minute})
		sc := setup(t, change)
		var sends sync.WaitGroup
		sends.Go(func() { sc.want(sc.post("/orders/messages", "by REST"), http.StatusCreated, "") })
		w := sc.watch("orders")
		var driven []*driven
		for i := range 2 {
			driven = append(driven, deliver(t, w, sc.within(fmt.Sprintf("m%d", i), "")))
		}
		synctest.Wait()
		if held := sc.messages("orders"); len(held) != 0 {
			t.Fatalf("orders holds %d messages while nothing is known of it, want none", len(held))
		}
		for _, x := range driven {
			x.wantReady("-")
		}
		close(k.known)
		sends.Wait()
		for _, x := range driven {
			x.wantReady("")
			x.settle(&amqp.Accepted{}).wantAnswer("")
		}
		refs := sc.references()
		if len(refs) != 3 {
			t.Fatalf("references %+v, want 3", refs)
		}
		for _, r := range refs {
			if r.Within != time.Minute || r.Stated != byDefault {
				t.Errorf("a deadline within %v, stated by %q, want the entity's default of a minute", r.Within, r.Stated)
			}
		}
	})
}

func TestAnAppKeepsItsOrderWhileNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, change := unknown(Settings{Monitored: true, DefaultMessageTimeToLive: time.Hour})
		sc := setupAMQP(t, change)
		s := sc.sender("orders")
		time.AfterFunc(5*time.Second, func() { close(k.known) })
		sc.must(s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("first")}, nil))
		var sends sync.WaitGroup
		for i := range 5 {
			sends.Go(func() {
				sc.must(s.SendMessage(t.Context(), &azservicebus.Message{Body: fmt.Appendf(nil, "later %d", i)}, nil))
			})
		}
		sends.Wait()
		if held := sc.messages("orders"); len(held) != 6 || string(held[0].Body) != "first" {
			t.Errorf("orders holds %d messages, the first of them %q, want 6 in order", len(held), held[0].Body)
		}
		if refs := sc.references(); len(refs) != 6 {
			t.Errorf("%d references, want 6", len(refs))
		}
	})
}

func TestWhatIsNotMonitoredPassesOnceThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, change := unknown(Settings{})
		sc := setup(t, change)
		w := sc.watch("orders")
		strange := &relay.Delivery{Payload: []byte("no AMQP")}
		x := deliver(t, w, strange)
		x.wantReady("-")
		close(k.known)
		x.wantReady("")
		if string(x.payload) != "no AMQP" {
			t.Errorf("payload %q, want it as it was", x.payload)
		}
		deliver(t, w, sc.within("m1", "30s")).wantPassed()
		deliver(t, w, strange).wantPassed()
	})
}

// A send to an entity that is not known in time is refused with an error that SDKs retry.
func TestASendDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, change := unknown(Settings{})
		sc := setup(t, change, func(s *setting) { s.proxy.SendTimeout = 10 * time.Second })
		began := time.Now()
		sc.want(sc.post("/orders/messages", "hello"), http.StatusServiceUnavailable, "not known yet")
		w := sc.watch("orders")
		x := deliver(t, w, sc.within("m1", ""))
		time.Sleep(10 * time.Second)
		x.wantReady("com.microsoft:server-busy")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("both took %v, want SendTimeout each", took)
		}
		// An app that leaves is not waited for, and its message goes nowhere.
		x = deliver(t, w, sc.within("m2", ""))
		w.Detached()
		synctest.Wait()
		if len(x.ready) > 0 && <-x.ready == nil {
			t.Error("a message goes on whose app has left before it is known what holds")
		}
		if held := sc.messages("orders"); len(held) != 0 {
			t.Errorf("orders holds %d messages, want none", len(held))
		}
	})
}
