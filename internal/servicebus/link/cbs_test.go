// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
)

// Claims go one by one, so what each of them costs delays all that come after it.
func TestAClaimTakesOneRoundTripAfterTheFirst(t *testing.T) {
	play(t, func(s *scene) {
		s.receiver("orders").Close(s.Context())
		const roundTrip = 100 * time.Millisecond
		s.ns.Net.Delay(pipenet.ToListener, roundTrip)
		began := time.Now()
		r := s.receiver("orders/$DeadLetterQueue")
		if took := time.Since(began); took > 3*roundTrip+roundTrip/2 {
			s.Errorf("a receiver for another audience took %v to open, want 3 round trips of %v: claim, begin, attach", took, roundTrip)
		}
		r.Close(s.Context())
	})
}

// Service Bus detaches links that were idle for ten minutes.
func TestAClaimOpensTheLinksAgainThatTheBrokerHasDetached(t *testing.T) {
	play(t, func(s *scene) {
		s.receiver("orders").Close(s.Context())
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Detach: true, Error: broker.ServerBusy(), Times: 1})
		for range 2 {
			s.receiver("orders/$DeadLetterQueue").Close(s.Context())
		}
		if n := s.ns.Net.Conns(); n != 1 {
			s.Errorf("%d connections, want the one", n)
		}
		if n := s.tokens.n.Load(); n != 2 {
			s.Errorf("%d tokens for two audiences, want one each", n)
		}
	})
}

func TestAClaimThatIsRefusedLeavesTheOthersAlone(t *testing.T) {
	play(t, func(s *scene) {
		s.receiver("orders").Close(s.Context())
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Error: broker.ServerBusy(), Times: 1})
		if _, err := s.links.Receiver(s.Context(), "orders/$DeadLetterQueue"); err == nil {
			s.Error("a receiver whose claim was refused opened, want an error")
		}
		s.receiver("orders/$DeadLetterQueue").Close(s.Context())
		if n := s.ns.Net.Conns(); n != 1 {
			s.Errorf("%d connections, want the one", n)
		}
	})
}
