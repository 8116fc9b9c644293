// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/exercise"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
)

// inChunks cuts both directions of the relay's input, and what its client reads.
func inChunks(s *scene, n int) {
	dial := s.relay.cfg.Dial
	s.relay.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		nc, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return pipenet.InPieces(nc, n), nil
	}
	s.wrap = func(nc net.Conn) net.Conn { return pipenet.InPieces(nc, n) }
}

// passThrough watches every link and changes nothing.
type passThrough struct{}

func (passThrough) Deliver(*Delivery) (DeliveryHandler, *amqp.Error) { return atOnce{}, nil }
func (passThrough) Detached()                                        {}

// atOnce holds nothing longer than a call.
type atOnce struct{}

func (atOnce) Before(r Resumer) bool                           { r.Resume(nil); return true }
func (atOnce) Settled(_ amqp.DeliveryState, answerer Answerer) { answerer.Answer(nil) }

// The conformance suite sees no difference whatever the pieces are in which
// bytes, frames and windows come, nor that every delivery is held.
func TestTheConformanceSuitePassesHoweverBytesAreCut(t *testing.T) {
	watched := func(c *Config) { c.Watch = func(Link) Watcher { return passThrough{} } }
	for _, way := range []struct {
		name      string
		chunk     int
		configure func(*Config)
	}{
		{"1 byte", 1, nil},
		{"1000 bytes, frames of 512 bytes, a window of one", 1000, func(c *Config) {
			c.MaxFrameSize, c.IncomingWindow = 512, 1
		}},
		{"watched, few bytes, frames of 512 bytes, a window of two", racetest.Sized(7, 97), func(c *Config) {
			watched(c)
			c.MaxFrameSize, c.IncomingWindow = 512, 2
		}},
	} {
		if racetest.Enabled && !strings.HasPrefix(way.name, "watched") {
			continue // each takes long: `make test` runs them without the race detector
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			exercise.Run(t, synctest.Test, func(t *testing.T) *exercise.Target {
				s := setup(t, way.configure, func(c *broker.Config) { c.AutoCreate = false })
				inChunks(s, way.chunk)
				return s.target(t, false)
			})
		})
	}
}

// largest is how long a body may be in a message of 1 MiB.
const largest = 1<<20 - len("\x00\x53\x75\xb0size")

func TestLargeMessagesPassBetweenSidesOfDifferentFrames(t *testing.T) {
	all := []struct{ client, relay uint32 }{{513, 65536}, {65536, 512}, {513, 512}, {65536, 65536}, {1000, 4096}} // go-amqp takes 512 for none
	for _, frames := range all[:racetest.Sized(len(all), 2)] {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("client %d, relay %d, watched %v", frames.client, frames.relay, watched), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := setup(t, func(c *Config) {
						if c.MaxFrameSize = frames.relay; watched {
							c.Watch = func(Link) Watcher { return passThrough{} }
						}
					})
					inChunks(s, 777)
					s.must(s.ns.Broker.AddQueue(broker.QueueConfig{Name: "orders", MaxMessageSize: 1 << 20}))
					session := s.raw(&goamqp.ConnOptions{MaxFrameSize: frames.client})
					sender := s.sender(session, nil)
					random := rand.New(rand.NewPCG(1, 2))
					want := make([][]byte, racetest.Sized(5, 2))
					for i := range want {
						want[i] = make([]byte, largest-i*100_003)
						for j := range want[i] {
							want[i][j] = byte(random.Uint32())
						}
						s.must(sender.Send(t.Context(), goamqp.NewMessage(want[i]), nil))
					}
					r, err := session.NewReceiver(t.Context(), "orders", &goamqp.ReceiverOptions{Credit: 5})
					s.must(err)
					for i := range want {
						m, err := r.Receive(t.Context(), nil)
						s.must(err)
						if !bytes.Equal(m.GetData(), want[i]) {
							t.Errorf("message %d: got %d bytes that differ, want the %d that were sent", i, len(m.GetData()), len(want[i]))
						}
						s.must(r.AcceptMessage(t.Context(), m))
					}
				})
			})
		}
	}
}
