// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

func TestWhatAStrangerMayCostIsBounded(t *testing.T) {
	brokertest.ExerciseUnauthenticated(t, func(t *testing.T) func(context.Context) (net.Conn, error) {
		return setup(t, own, secured("orders")).dial
	})
}

// Unauthenticated connections come every two milliseconds, send their open and stay. A client
// needs a second for its token, and gets in all the same; one that is in stays in.
func TestAClientGetsInWhileStrangersFillTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders"))
		s.relay.cfg.ErrorLog = nil
		send := func(sender *azservicebus.Sender) {
			t.Helper()
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
				t.Errorf("SendMessage = %v, want nil", err)
			}
		}
		before, err := s.app(appValue).NewSender("orders", nil)
		s.must(err)
		send(before)
		var unauthenticated []*brokertest.Unauthenticated
		for range 1000 { // more than have a place
			unauthenticated = append(unauthenticated, brokertest.NewUnauthenticated(t, s.dial))
		}
		synctest.Wait()
		living := 0
		for _, c := range unauthenticated {
			if !c.Ended() {
				living++
			}
		}
		// Each counts at its own cost and that of its connection to the namespace.
		if most := 682; living == 0 || living > most {
			t.Errorf("%d of %d unauthenticated connections have a place, want some, and at most %d", living, len(unauthenticated), most)
		}
		s.front.Delay(pipenet.Both, 50*time.Millisecond)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for ctx.Err() == nil {
				time.Sleep(2 * time.Millisecond)
				nc, err := s.dial(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
			}
		}()
		start := time.Now()
		after, err := s.app(appValue).NewSender("orders", nil)
		s.must(err)
		send(after)
		if took := time.Since(start); took < 500*time.Millisecond {
			t.Errorf("it took %v, want a while in which unauthenticated connections come", took)
		}
		send(before)
		stop()
		<-stopped
	})
}
