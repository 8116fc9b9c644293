// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// An attach waits while its token is put; nothing else of the connection does.
func TestASlowTokenHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(cfg *Config) {
			tokens := ownKey()
			cfg.Tokens = func(ctx context.Context, audience string) (Token, error) {
				if strings.HasSuffix(audience, "/slow") {
					time.Sleep(10 * time.Second)
				}
				return tokens(ctx, audience)
			}
		}, secured("orders", "slow"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		first, err := c.NewSession(t.Context(), nil)
		s.must(err)
		second, err := c.NewSession(t.Context(), nil)
		s.must(err)
		start := time.Now()
		slow := make(chan error, 1)
		go func() {
			_, err := first.NewSender(t.Context(), "slow", nil)
			slow <- err
		}()
		synctest.Wait()
		_, err = second.NewSender(t.Context(), "orders", nil)
		s.must(err)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("another session waited %v, want it not to", waited)
		}
		s.must(<-slow)
		if waited := time.Since(start); waited != 10*time.Second {
			t.Errorf("the link to the slow entity came after %v, want 10s", waited)
		}
	})
}

func TestAClientThatLeavesWhileItsTokenIsPutLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(cfg *Config) {
			cfg.Tokens = func(ctx context.Context, _ string) (Token, error) {
				<-ctx.Done()
				return Token{}, ctx.Err()
			}
		}, secured("orders"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := session.NewSender(ctx, "orders", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("NewSender = %v, want the deadline", err)
		}
		s.must(c.Close())
		synctest.Wait()
		if n := len(s.relay.conns.Living()); n != 0 {
			t.Errorf("%d connections are left, want none", n)
		}
	})
}

func TestLinksEndUpstreamWhenThereAreNoMoreTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := setup(t, func(cfg *Config) {
			tokens := ownKey()
			cfg.Tokens = func(ctx context.Context, audience string) (Token, error) {
				if time.Since(start) > 0 && time.Since(start) < 3*time.Hour {
					return Token{}, errors.New("the identity provider is down")
				}
				return tokens(ctx, audience)
			}
		}, secured("orders"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		sender, err := session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		time.Sleep(sasLifetime - time.Minute)
		s.must(sender.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil))
		time.Sleep(2 * time.Minute)
		var le *goamqp.LinkError
		err = sender.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil)
		if !errors.As(err, &le) || le.RemoteErr == nil || le.RemoteErr.Condition != goamqp.ErrCondUnauthorizedAccess {
			t.Errorf("a link whose token could not be renewed = %v, want %s", err, goamqp.ErrCondUnauthorizedAccess)
		}
		var e *goamqp.Error
		if _, err = session.NewSender(t.Context(), "orders", nil); !errors.As(err, &e) || string(e.Condition) != string(condServerBusy) {
			t.Errorf("a link when there are no tokens = %v, want %s, which is tried again", err, condServerBusy)
		}
		time.Sleep(3 * time.Hour)
		sender, err = session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		s.must(sender.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil))
	})
}

// Requests are sent settled, so that nothing but the relay's own bounds holds
// them back, and their answers are never taken.
func TestRequestsWhoseAnswersNobodyTakesAreBounded(t *testing.T) {
	for name, operation := range map[string]string{"answered at once": "nonsense", "answered by upstream": "put-token"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(cfg *Config) { cfg.Tokens = ownKey() }, secured("orders"))
				c := s.connect(goamqp.SASLTypeAnonymous())
				session, err := c.NewSession(t.Context(), nil)
				s.must(err)
				receiver, err := session.NewReceiver(t.Context(), "$cbs", &goamqp.ReceiverOptions{Credit: -1})
				s.must(err)
				sender, err := session.NewSender(t.Context(), "$cbs", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
				s.must(err)
				for i := range 2 * maxReplies {
					if err = sender.Send(t.Context(), &goamqp.Message{
						Value: strings.Repeat("x", 1000),
						ApplicationProperties: map[string]any{
							"operation": operation, "name": fmt.Sprintf("sb://h/q%d", i),
						},
					}, nil); err != nil {
						break
					}
				}
				synctest.Wait()
				time.Sleep(time.Minute)
				var le *goamqp.LinkError
				_, got := receiver.Receive(t.Context(), nil)
				if !errors.As(got, &le) && !errors.As(err, &le) || le.RemoteErr == nil || le.RemoteErr.Condition != goamqp.ErrCondResourceLimitExceeded {
					t.Errorf("the links end with %v and %v, want %s for one", err, got, goamqp.ErrCondResourceLimitExceeded)
				}
			})
		})
	}
}

// A link that is gone needs no token: upstream would be shown one for each entity that a long
// connection ever used.
func TestTokensAreNotRenewedForLinksThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := setup(t, func(cfg *Config) {
			token := ownKey()
			cfg.Tokens = func(ctx context.Context, audience string) (Token, error) {
				asked.Add(1)
				return token(ctx, audience)
			}
		}, secured("orders"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		sender, err := session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		time.Sleep(12 * time.Hour)
		if n := asked.Load(); n < 2 {
			t.Errorf("%d tokens in half a day with a link, want them renewed", n)
		}
		s.must(sender.Close(t.Context()))
		before := asked.Load()
		time.Sleep(24 * time.Hour)
		if n := asked.Load(); n != before {
			t.Errorf("%d tokens in a day without a link, want none", n-before)
		}
	})
}
