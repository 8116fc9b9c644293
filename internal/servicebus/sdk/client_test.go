// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/testing/brokertest"
)

// scene is a client before a broker, on connections that the test can close in the broker's name.
type scene struct {
	*testing.T
	ns     *brokertest.Namespace
	client *sdk.Client
	sender *sdk.Sender

	mu      sync.Mutex
	open    []*closable
	dial    sdk.Dialer // of the latest client of the SDK
	dialled int
	renewed []error
}

// play runs a scene on fake time, with a queue orders.
func play(t *testing.T, act func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		s.ns = brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{{Name: "orders"}}
		})
		var err error
		s.client, err = sdk.New(sdk.Config{
			Dial: s.connect,
			Make: func(dial sdk.Dialer) (*azservicebus.Client, error) {
				s.dial = dial
				return azservicebus.NewClientFromConnectionString(s.ns.ConnectionString(), &azservicebus.ClientOptions{
					NewWebSocketConn: dial,
					RetryOptions:     azservicebus.RetryOptions{MaxRetries: 2, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second},
				})
			},
			Renewed: func(why error) { s.renewed = append(s.renewed, why) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.client.Close(ctx); err != nil {
				t.Errorf("Close = %v, want nil", err)
			}
			if n := s.connections(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
		s.sender = s.client.NewSender("orders")
		act(s)
	})
}

// send sends a message with failureTimeout for d.
func (s *scene) send(d time.Duration) error {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	return s.sender.Send(ctx, &azservicebus.Message{})
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

// wantRenewals checks how often the client has been replaced.
func (s *scene) wantRenewals(want int) {
	s.Helper()
	if len(s.renewed) != want {
		s.Errorf("the client has been replaced %d times, want %d: %v", len(s.renewed), want, s.renewed)
	}
}

// connections is how many are open.
func (s *scene) connections() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// closable is a connection to the broker with somebody in the middle.
type closable struct {
	near, far net.Conn
	writing   sync.Mutex // to near, whole frames each
}

func (s *scene) connect(ctx context.Context) (net.Conn, error) {
	far, err := s.ns.Dial(ctx)
	if err != nil {
		return nil, err
	}
	nc, near := net.Pipe()
	c := &closable{near: near, far: far}
	s.mu.Lock()
	s.open = append(s.open, c)
	s.dialled++
	s.mu.Unlock()
	go func() {
		_, _ = io.Copy(far, near) // until one of the two ends it
		_ = far.Close()
	}()
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := far.Read(buf)
			if err == nil {
				c.writing.Lock()
				_, err = near.Write(buf[:n])
				c.writing.Unlock()
			}
			if err != nil {
				break
			}
		}
		_ = near.Close()
		s.mu.Lock()
		s.open = slices.DeleteFunc(s.open, func(o *closable) bool { return o == c })
		s.mu.Unlock()
	}()
	return nc, nil
}

// closeAll closes every connection in the broker's name.
func (s *scene) closeAll(condition amqp.Symbol) {
	s.Helper()
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, c := range open {
		c.writing.Lock()
		_, err := c.near.Write(amqp.AppendFrame(nil, 0, &amqp.Close{Error: amqp.Errorf(condition, "The broker does not like it.")}, nil))
		c.writing.Unlock()
		s.must(err)
	}
	synctest.Wait()
}

// The SDK recovers from some of these by itself. Those after which it spins are left out: fake time
// stands still.
func TestASenderOutlivesWhateverItsConnectionIsClosedWith(t *testing.T) {
	for condition, again := range map[amqp.Symbol]int{
		amqp.ErrCondConnectionForced:       0,
		amqp.ErrCondInternalError:          0,
		amqp.ErrCondConnectionFramingError: 0,
		amqp.ErrCondUnauthorizedAccess:     1,
		amqp.ErrCondNotFound:               1,
		amqp.ErrCondNotAllowed:             1,
		amqp.ErrCondResourceLimitExceeded:  1,
		amqp.ErrCondLinkDetachForced:       1,
		"com.microsoft:entity-disabled":    1,
	} {
		t.Run(string(condition), func(t *testing.T) {
			play(t, func(s *scene) {
				s.must(s.send(time.Minute))
				s.closeAll(condition)
				err := s.send(time.Minute)
				if again == 0 && err != nil {
					s.Errorf("the first send = %v, want nil", err)
				}
				s.must(s.send(time.Minute))
				s.wantRenewals(again)
			})
		})
	}
}

func TestASenderOutlivesTheDeletionOfItsQueue(t *testing.T) {
	play(t, func(s *scene) {
		s.must(s.send(time.Minute))
		s.must(s.ns.Broker.Default().DeleteQueue("orders"))
		if err := s.send(time.Minute); err == nil {
			s.Error("a send to a queue that is not there = nil, want an error")
		}
		s.must(s.ns.Broker.AddQueue(broker.QueueConfig{Name: "orders"}))
		s.must(s.send(time.Minute))
		s.wantRenewals(0)
	})
}

func TestAClientThatIsNotAnsweredIsMadeAnew(t *testing.T) {
	play(t, func(s *scene) {
		s.must(s.send(time.Minute))
		remove := s.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnSend, Silent: true})
		if err := s.send(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("send = %v, want that nobody answered", err)
		}
		s.wantRenewals(0) // it was not asked for long
		if err := s.send(20 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("send = %v, want that nobody answered", err)
		}
		s.wantRenewals(1)
		remove()
		s.must(s.send(time.Minute))
		if n := s.connections(); n != 2 {
			s.Errorf("%d connections are open, want that of the old client and of the new", n)
		}
		time.Sleep(time.Minute)
		if n := s.connections(); n != 1 {
			s.Errorf("%d connections are open a minute later, want that of the new client", n)
		}
	})
}

// An operation that fails for its own reasons leaves the client alone, however often.
func TestAClientThatIsAnsweredIsKept(t *testing.T) {
	for name, refused := range map[string]*amqp.Error{
		"full":     broker.EntityFull(),
		"busy":     broker.ServerBusy(),
		"no right": amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "No."),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				for _, detach := range []bool{false, true} {
					remove := s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: refused, Detach: detach})
					for range 60 {
						if err := s.send(20 * time.Second); err == nil {
							s.Fatal("send = nil, want an error")
						}
						time.Sleep(time.Second)
					}
					remove()
					s.must(s.send(time.Minute))
				}
				s.wantRenewals(0)
				if n := s.connections(); n != 1 {
					s.Errorf("%d connections are open, want one", n)
				}
			})
		})
	}
}

func TestAClientIsMadeAnewEverMoreSeldom(t *testing.T) {
	play(t, func(s *scene) {
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			_ = s.send(20 * time.Second)
			if n := s.connections(); n > 5 {
				s.Fatalf("%d connections are open, want no more than five", n)
			}
			s.closeAll(amqp.ErrCondUnauthorizedAccess)
		}
		if n := len(s.renewed); n < 10 || n > 16 {
			s.Errorf("a client whose connections are closed was replaced %d times in ten minutes, want 10 to 16", n)
		}
		time.Sleep(time.Minute)
		_ = s.send(time.Minute) // may find the last one dead
		s.must(s.send(time.Minute))
		time.Sleep(10 * time.Minute)
		s.closeAll(amqp.ErrCondUnauthorizedAccess)
		before := len(s.renewed)
		_ = s.send(time.Minute)
		s.must(s.send(time.Minute))
		time.Sleep(2 * time.Second)
		s.closeAll(amqp.ErrCondUnauthorizedAccess)
		_ = s.send(time.Minute)
		s.wantRenewals(before + 2) // after a client that lasted, the pause is short
	})
}

func TestAnOperationThatOutlivesItsContextIsCut(t *testing.T) {
	play(t, func(s *scene) {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		began, dial := time.Now(), s.dial
		err := s.sender.Do(ctx, func(context.Context, *azservicebus.Sender) error {
			// As the SDK waits when it renews a token, with a lock that all others need.
			nc, err := dial(context.Background(), azservicebus.NewWebSocketConnArgs{})
			s.must(err)
			_, err = nc.Read(make([]byte, 1))
			return err
		})
		if err == nil || time.Since(began) > 20*time.Second {
			s.Errorf("it ended after %v with %v, want an error soon after the end of its context", time.Since(began), err)
		}
		s.wantRenewals(1)
		s.must(s.send(time.Minute))
	})
}

func TestAClosedSenderSendsNothing(t *testing.T) {
	play(t, func(s *scene) {
		s.must(s.send(time.Minute))
		s.must(s.sender.Close(s.Context()))
		if err := s.send(time.Minute); !errors.Is(err, sdk.ErrClosed) {
			s.Errorf("send = %v, want ErrClosed", err)
		}
	})
}

func TestAClientThatCannotBeMadeIsAnError(t *testing.T) {
	wrong := errors.New("wrong")
	_, err := sdk.New(sdk.Config{Make: func(sdk.Dialer) (*azservicebus.Client, error) { return nil, wrong }})
	if !errors.Is(err, wrong) {
		t.Errorf("New = %v, want %v", err, wrong)
	}
}
