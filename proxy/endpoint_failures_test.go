// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// failing is a listener that cannot accept.
type failing struct{ net.Listener }

var errAccept = errors.New("no more sockets")

func (failing) Accept() (net.Conn, error) { return nil, errAccept }

func TestServeSaysWhyTheListenerFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for name, serve := range map[string]func(net.Listener) error{"Serve": sc.proxy.Serve, "ServeTLS": sc.proxy.ServeTLS} {
			ln, err := sc.ns.Net.Listen(name + ".test")
			if err != nil {
				t.Fatal(err)
			}
			if err := serve(failing{ln}); !errors.Is(err, errAccept) {
				t.Errorf("%s = %v, want %v", name, err, errAccept)
			}
		}
	})
}

func TestARequestThatIsTooLargeWithItsStampsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.measure = false }) // messages cannot go without ids
		w := sc.watch("orders/$management")
		d := sc.request(rights.ScheduleMessage, map[string]any{"messages": []any{
			map[string]any{"message": sc.scheduled(nil, time.Now().Add(time.Hour), "30s")},
		}})
		d.MaxSize = uint64(len(d.Payload))
		deliver(t, w, d).wantRefused("amqp:link:message-size-exceeded", "orders")
	})
}

// Where the namespace judges the clients, nobody here knows whether one has shown a good token. A
// connection over which a request has come is no longer cut to make room for unauthenticated
// connections.
func TestARequestWithATokenForTheNamespaceKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupClients(t)
		c, token := sc.browser(), signed(sendKey, "mine")
		send := func() (reused bool) {
			t.Helper()
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
			})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+endpointName+"/mine/messages", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", token)
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusCreated {
				t.Fatalf("send = %s, want 201", answer.Status)
			}
			return reused
		}
		send()
		for range 2100 { // of 16 KiB each, as they are counted: more than the 32 MiB for all of them
			nc, err := sc.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			synctest.Wait()
		}
		if !send() {
			t.Error("the connection was cut, want unauthenticated ones to be")
		}
	})
}

// The log has each send that failed, once, and no other.
func TestOnlySendsThatFailAreLogged(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome amqp.DeliveryState
		gone    bool // the monitor queue
		want    string
		level   zapcore.Level
	}{
		{"accepted", amqp.Accepted{}, false, "send accepted", zapcore.DebugLevel},
		{"rejected", &amqp.Rejected{Error: amqp.Errorf(amqp.ErrCondNotAllowed, "no")}, false, "send failed", zapcore.DebugLevel},
		{"without a companion", amqp.Accepted{}, true, "send failed", zapcore.WarnLevel},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zapcore.DebugLevel)
				sc := setup(t, func(s *setting) {
					s.proxy.Log = zap.New(core)
					if c.gone {
						s.queues, s.measure = nil, false
					}
				})
				deliver(t, sc.watch("orders"), sc.within("m1", "30s")).settle(c.outcome)
				time.Sleep(time.Minute)
				all := logs.FilterField(zap.String("endpoint", endpointAMQP)).All()
				if len(all) != 1 || all[0].Message != c.want || all[0].Level != c.level {
					t.Errorf("logged %v, want %q once, as %v", all, c.want, c.level)
				}
			})
		})
	}
}
