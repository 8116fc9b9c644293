// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/exercise"
	"overdue/internal/testing/racetest"
)

// target is the namespace behind the endpoints, as the conformance suite wants it.
func (sc *amqpScene) target() *exercise.Target {
	target := exercise.Embedded(sc.ns)
	target.ClientOptions.NewWebSocketConn = func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return sc.dial(ctx)
	}
	target.Dial, target.HTTP = sc.dial, sc.browser().Do
	target.Cut = func() { sc.front.Cut() }
	return target
}

// The conformance suite of the project, its cases over HTTP included, sees no difference. Yet every
// entity is monitored and every message has a deadline: an hour, unless it states one.
func TestANamespaceBehindTheAMQPDoorPassesTheConformanceSuite(t *testing.T) {
	racetest.Skip(t, "test/conformance has an endpoint under it, and internal/amqp/relay this suite")
	exercise.Run(t, synctest.Test, func(t *testing.T) *exercise.Target {
		sc := setupREST(t, func(s *setting) {
			s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, Deadline: 24 * time.Hour} }
		})
		return sc.target()
	})
}
