// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

func TestWhatAStrangerMayCostIsBounded(t *testing.T) {
	brokertest.ExerciseUnauthenticated(t, func(t *testing.T) func(context.Context) (net.Conn, error) {
		return brokertest.New(t, withKeys(), func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "orders"}} }).Dial
	})
}

// A stranger comes every millisecond, sends its open and stays. A client needs a second for its
// token, and gets in all the same; one that is in stays in.
func TestAClientGetsInWhileStrangersFillTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys(), func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "orders"}} })
		before := dial(t, ns)
		before.sas(keyName, keyText, "orders", time.Hour)
		sender, err := before.session.NewSender(t.Context(), "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		var unauthenticated []*brokertest.Unauthenticated
		for range 5000 {
			unauthenticated = append(unauthenticated, brokertest.NewUnauthenticated(t, ns.Dial))
		}
		living := func() (n int) {
			synctest.Wait()
			for _, s := range unauthenticated {
				if !s.Ended() {
					n++
				}
			}
			return n
		}
		if n, most := living(), 2048; n == 0 || n > most {
			t.Errorf("%d of 5,000 unauthenticated connections have a place, want some, and at most %d", n, most)
		}
		ns.Net.Delay(pipenet.Both, 50*time.Millisecond)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					nc, err := ns.Dial(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					defer nc.Close()
				}
			}
		}()
		start := time.Now()
		c := dial(t, ns)
		c.sas(keyName, keyText, "orders", time.Hour)
		if err := c.send("orders"); err != nil {
			t.Errorf("a client that comes while unauthenticated connections do = %v, want it to be served", err)
		}
		if took := time.Since(start); took < 500*time.Millisecond {
			t.Errorf("it took %v, want a while in which unauthenticated connections come", took)
		}
		if err := sender.Send(t.Context(), amqp.NewMessage([]byte("x")), nil); err != nil {
			t.Errorf("a client that was in = %v, want it to stay", err)
		}
		close(stop)
		<-stopped
	})
}
