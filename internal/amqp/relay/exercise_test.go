// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/exercise"
	"overdue/internal/testing/racetest"
)

// target is the namespace behind the relay, as the conformance suite wants it.
func (s *scene) target(t *testing.T, secured bool) *exercise.Target {
	server := httpapi.New(httpapi.Config{Broker: s.ns.Broker, ErrorLog: func(err error) { t.Log(err) }})
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		theirs, ours := net.Pipe()
		go func() { _ = server.ServeConn(ours) }() // it ends with the client's connection
		return theirs, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Errorf("closing the endpoint: %v", err)
		}
	})
	target := exercise.Embedded(s.ns)
	target.ClientOptions, target.Dial = s.options(), s.dial
	target.HTTP, target.Secured = (&http.Client{Transport: transport}).Do, secured
	return target
}

// The conformance suite of the project sees no difference, be the tokens the
// client's own, which pass, or the relay's.
func TestANamespaceBehindTheRelayPassesTheConformanceSuite(t *testing.T) {
	for _, c := range []struct {
		name      string
		keys, own bool
		judged    bool // the client's tokens are, by the broker
	}{
		{name: "open"},
		{name: "with keys", keys: true, judged: true},
		{name: "with keys that only the relay has", keys: true, own: true},
	} {
		if racetest.Enabled && !c.own {
			continue // a relay without tokens of its own is in the suite with bytes cut
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			exercise.Run(t, synctest.Test, func(t *testing.T) *exercise.Target {
				s := setup(t, func(cfg *Config) {
					if c.own {
						cfg.Tokens = ownKey()
					}
				}, func(cfg *broker.Config) {
					if cfg.AutoCreate = false; c.keys {
						cfg.Keys = []broker.AuthorizationRule{brokertest.Key()}
					}
				})
				target := s.target(t, c.judged)
				if c.own {
					target.HTTP = nil // it leads to the namespace, for which the client has no key
				}
				return target
			})
		})
	}
}
