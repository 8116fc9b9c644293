// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// saslSpeaker is one end of a connection, written and read by the test.
type saslSpeaker struct {
	*testing.T
	nc net.Conn
	in *amqp.FrameReader
}

func speaker(t *testing.T, nc net.Conn) *saslSpeaker {
	t.Cleanup(func() { nc.Close() })
	return &saslSpeaker{T: t, nc: nc, in: amqp.NewFrameReader(nc, 4096)}
}

func (s *saslSpeaker) write(b []byte) {
	s.Helper()
	if _, err := s.nc.Write(b); err != nil {
		s.Fatalf("write: %v", err)
	}
}

func (s *saslSpeaker) proto(want [8]byte) {
	s.Helper()
	if got, err := s.in.ReadProto(); err != nil || got != want {
		s.Fatalf("protocol header = % x, %v, want % x", got, err, want)
	}
}

func (s *saslSpeaker) frame() amqp.Performative {
	s.Helper()
	f, err := s.in.Next()
	if err != nil {
		s.Fatalf("read: %v", err)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// login brings a client through the relay's SASL and returns the outcome.
func (s *saslSpeaker) login(init *amqp.SASLInit) uint8 {
	s.Helper()
	s.write(amqp.ProtoSASL[:])
	s.proto(amqp.ProtoSASL)
	offer, ok := s.frame().(*amqp.SASLMechanisms)
	if !ok || len(offer.Mechanisms) != 4 || offer.Mechanisms[0] != "MSSBCBS" {
		s.Errorf("offer = %v, want what the service offers, MSSBCBS first", offer)
	}
	s.write(amqp.AppendSASLFrame(nil, init))
	outcome, ok := s.frame().(*amqp.SASLOutcome)
	if !ok {
		s.Fatal("no outcome")
	}
	return outcome.Code
}

func TestSASLOfTheEndpoint(t *testing.T) {
	for _, c := range []struct {
		name string
		init amqp.SASLInit
		want uint8
	}{
		{"anonymous", amqp.SASLInit{Mechanism: "ANONYMOUS"}, amqp.SASLOK},
		{"MSSBCBS", amqp.SASLInit{Mechanism: "MSSBCBS", InitialResponse: []byte{}}, amqp.SASLOK},
		{"PLAIN", amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00app\x00" + appValue)}, amqp.SASLOK},
		{"PLAIN with a wrong key", amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00app\x00x")}, amqp.SASLAuth},
		{"PLAIN without a response", amqp.SASLInit{Mechanism: "PLAIN"}, amqp.SASLAuth},
		{"PLAIN with too much", amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00app\x00" + appValue + "\x00")}, amqp.SASLAuth},
		{"what is not offered", amqp.SASLInit{Mechanism: "SCRAM-SHA-256"}, amqp.SASLAuth},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, own, secured("orders"))
				nc, err := s.dial(t.Context())
				s.must(err)
				if code := speaker(t, nc).login(&c.init); code != c.want {
					t.Errorf("outcome = %d, want %d", code, c.want)
				}
			})
		})
	}
}

func TestAClientThatIsJudgedHasToComeThroughSASL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders"))
		nc, err := s.dial(t.Context())
		s.must(err)
		c := speaker(t, nc)
		c.write(amqp.ProtoAMQP[:])
		c.proto(amqp.ProtoSASL)
	})
}

func TestTheRelayIntroducesItselfAsTheUpstreamKnowsIt(t *testing.T) {
	ours := func(cfg *Config) { cfg.Tokens = ownKey() }
	for _, c := range []struct {
		name      string
		configure func(*Config)
		client    amqp.SASLInit
		offer     []amqp.Symbol
		want      string // mechanism and response
	}{
		{"as nobody", ours, amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00a\x00b")}, []amqp.Symbol{"PLAIN", "ANONYMOUS"}, "ANONYMOUS anonymous"},
		{"as .NET does", ours, amqp.SASLInit{Mechanism: "ANONYMOUS"}, []amqp.Symbol{"EXTERNAL", "MSSBCBS"}, "MSSBCBS anonymous"},
		{"as the client", func(*Config) {}, amqp.SASLInit{Mechanism: "EXTERNAL", InitialResponse: []byte("\x00b")}, []amqp.Symbol{"EXTERNAL", "ANONYMOUS"}, "EXTERNAL \x00b"},
		{"as the client, which chose what is not offered and proves nothing", func(*Config) {}, amqp.SASLInit{Mechanism: "EXTERNAL"}, []amqp.Symbol{"ANONYMOUS"}, "ANONYMOUS anonymous"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				theirs, dialled := net.Pipe()
				s := setup(t, func(cfg *Config) {
					c.configure(cfg)
					cfg.Dial = func(context.Context) (net.Conn, error) { return dialled, nil }
				})
				nc, err := s.dial(t.Context())
				s.must(err)
				client, broker := speaker(t, nc), speaker(t, theirs)
				if code := client.login(&c.client); code != amqp.SASLOK {
					t.Fatalf("outcome = %d, want ok", code)
				}
				client.write(amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "app", MaxFrameSize: 4096, ChannelMax: 7}, nil))
				broker.proto(amqp.ProtoSASL)
				broker.write(amqp.AppendSASLFrame(bytes.Clone(amqp.ProtoSASL[:]), &amqp.SASLMechanisms{Mechanisms: c.offer}))
				init, ok := broker.frame().(*amqp.SASLInit)
				if !ok {
					t.Fatal("no sasl-init")
				}
				if got := string(init.Mechanism) + " " + string(init.InitialResponse); got != c.want {
					t.Errorf("the relay says %q, want %q", got, c.want)
				}
				broker.write(amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{Code: amqp.SASLAuth}))
				client.proto(amqp.ProtoAMQP)
				if _, ok := client.frame().(*amqp.Open); !ok {
					t.Error("no open before the close")
				}
				end, ok := client.frame().(*amqp.Close)
				if !ok || end.Error == nil || end.Error.Condition != amqp.ErrCondUnauthorizedAccess {
					t.Errorf("a refusal upstream ends the client's connection with %v, want %s", end, amqp.ErrCondUnauthorizedAccess)
				} else if strings.Contains(end.Error.Description, "\x00b") {
					t.Errorf("the close shows the password: %v", end.Error)
				}
			})
		})
	}
}

// A client whose password passes on gets the verdict of upstream, and no OK
// before.
func TestAPasswordThatPassesOnIsJudgedUpstream(t *testing.T) {
	for name, upstreamSays := range map[string]uint8{"right": amqp.SASLOK, "wrong": amqp.SASLAuth, "for later": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				theirs, dialled := net.Pipe()
				s := setup(t, func(cfg *Config) {
					cfg.Dial = func(context.Context) (net.Conn, error) { return dialled, nil }
				})
				nc, err := s.dial(t.Context())
				s.must(err)
				client, broker := speaker(t, nc), speaker(t, theirs)
				code := make(chan uint8, 1)
				go func() {
					code <- client.login(&amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00a\x00b")})
				}()
				broker.proto(amqp.ProtoSASL)
				broker.write(amqp.AppendSASLFrame(bytes.Clone(amqp.ProtoSASL[:]), &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"PLAIN"}}))
				if init, ok := broker.frame().(*amqp.SASLInit); !ok || init.Mechanism != "PLAIN" || string(init.InitialResponse) != "\x00a\x00b" {
					t.Errorf("upstream hears %v, want what the client says", init)
				}
				synctest.Wait()
				select {
				case got := <-code:
					t.Fatalf("the client got outcome %d before upstream answered", got)
				default:
				}
				broker.write(amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{Code: upstreamSays}))
				if upstreamSays != amqp.SASLOK {
					if got := <-code; got != amqp.SASLAuth {
						t.Errorf("the client got outcome %d, want %d", got, amqp.SASLAuth)
					}
					if rest, err := io.ReadAll(nc); len(rest) > 0 {
						t.Errorf("after that comes % x, %v; want the end", rest, err)
					}
					return
				}
				if got := <-code; got != amqp.SASLOK {
					t.Errorf("the client got outcome %d, want ok", got)
				}
				client.write(amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "app", MaxFrameSize: 4096}, nil))
				broker.proto(amqp.ProtoAMQP)
				if _, ok := broker.frame().(*amqp.Open); !ok {
					t.Error("the client's open does not come through")
				}
			})
		})
	}
}

// A namespace that cannot be reached has not judged anybody: SDKs try again after a
// close that says so.
func TestAPasswordWaitsForNoNamespaceThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s := setup(t, func(cfg *Config) {
			cfg.Dial = func(context.Context) (net.Conn, error) {
				dials++
				return nil, errors.New("away")
			}
		})
		nc, err := s.dial(t.Context())
		s.must(err)
		client := speaker(t, nc)
		if code := client.login(&amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00a\x00b")}); code != amqp.SASLOK {
			t.Fatalf("outcome = %d, want ok", code)
		}
		client.write(amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "app", MaxFrameSize: 4096}, nil))
		client.proto(amqp.ProtoAMQP)
		client.frame() // the open
		if end, ok := client.frame().(*amqp.Close); !ok || end.Error == nil || end.Error.Condition != amqp.ErrCondConnectionForced {
			t.Errorf("the connection ends with %v, want %s", end, amqp.ErrCondConnectionForced)
		}
		if dials != 1 {
			t.Errorf("%d dials, want one", dials)
		}
	})
}
