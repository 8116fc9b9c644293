// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"fmt"
	"sync"
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
		if took := time.Since(began); took > 2*roundTrip+roundTrip/2 {
			s.Errorf("a receiver for another audience took %v to open, want 2 round trips of %v: claim, attach", took, roundTrip)
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

// A monitor of a thousand queues claims thousands of audiences when it starts.
func TestManyClaimsTakeHardlyLongerThanOne(t *testing.T) {
	play(t, func(s *scene) {
		s.receiver("orders").Close(s.Context())
		const roundTrip, many = 100 * time.Millisecond, 60
		for i := range many {
			if err := s.ns.Broker.AddQueue(broker.QueueConfig{Name: fmt.Sprint("q-", i)}); err != nil {
				s.Fatal(err)
			}
		}
		s.ns.Net.Delay(pipenet.ToListener, roundTrip)
		began := time.Now()
		var opening sync.WaitGroup
		for i := range many {
			opening.Go(func() { s.receiver(fmt.Sprint("q-", i)).Close(s.Context()) })
		}
		opening.Wait()
		if took := time.Since(began); took > 5*roundTrip {
			s.Errorf("%d receivers took %v to open, want about 4 round trips of %v: the first claim, two for the others, attach", many, took, roundTrip)
		}
		if n := s.tokens.n.Load(); n != many+1 {
			s.Errorf("%d tokens for %d audiences, want one each", n, many+1)
		}
	})
}

// Nobody has seen Service Bus take several tokens at once.
func TestWhereTokensAreNotTakenAtOnceTheyArePutOneByOne(t *testing.T) {
	play(t, func(s *scene) {
		s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Detach: true, Error: broker.ServerBusy(), Times: 1})
		if put, err := s.links.PutTokens(s.Context(), "orders", "orders/$DeadLetterQueue", "orders/$management"); err == nil || put != 0 {
			s.Errorf("%d tokens were put, %v; want an error", put, err)
		}
		for range 2 {
			if put, err := s.links.PutTokens(s.Context(), "orders", "orders/$DeadLetterQueue", "orders/$management"); err != nil || put != 1 {
				s.Errorf("%d tokens were put, %v; want the first one", put, err)
			}
		}
	})
}
