// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// A tokenScene is a keeper whose upstream answers as a test wants it to.
type tokenScene struct {
	*keeper
	puts []string // audience and when, since the start
	logs []error  // read them with failures
	got  *claim   // of the last wait

	lifetime time.Duration
	tokenErr error                         // set it with breakTokens
	answer   func(n int) (response, error) // to the n-th put, from 1
	delay    time.Duration                 // of the answer
}

func newTokenScene(t *testing.T) *tokenScene {
	s := &tokenScene{lifetime: time.Hour}
	s.answer = func(int) (response, error) { return response{status: 202}, nil }
	start := time.Now()
	s.keeper = newKeeper(context.Background(), "contoso.servicebus.windows.net", func(context.Context, string) (Token, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tokenErr != nil {
			return Token{}, s.tokenErr
		}
		return Token{Text: "secret", Type: TokenJWT, Expires: time.Now().Add(s.lifetime)}, nil
	}, func(ctx context.Context, audience string, _ Token) (response, error) {
		s.mu.Lock()
		s.puts = append(s.puts, fmt.Sprintf("%v %s", time.Since(start).Round(time.Second), audience))
		n := len(s.puts)
		s.mu.Unlock()
		select {
		case <-time.After(s.delay):
			return s.answer(n)
		case <-ctx.Done():
			return response{}, ctx.Err()
		}
	}, func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logs = append(s.logs, err)
	})
	t.Cleanup(s.close)
	return s
}

// wait needs a token for address and returns what comes of it.
func (s *tokenScene) wait(address string) *amqp.Error {
	done := make(chan *amqp.Error, 1)
	c, inEffect := s.need(address, func(err *amqp.Error) { done <- err })
	s.got = c
	if inEffect {
		return nil
	}
	return <-done
}

// has reports whether a link to address need not wait.
func (s *tokenScene) has(address string) bool {
	_, inEffect := s.need(address, func(*amqp.Error) {})
	return inEffect
}

func (s *tokenScene) breakTokens(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenErr = err
}

// failures returns what was logged since the last call.
func (s *tokenScene) failures() []error {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := s.logs
	s.logs = nil
	return logs
}

func (s *tokenScene) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.puts)
}

func TestOneTokenServesAllLinksToAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		s.delay = time.Second
		done := make(chan *amqp.Error, 3)
		for _, address := range []string{"orders", "Orders", "ORDERS"} {
			if _, inEffect := s.need(address, func(err *amqp.Error) { done <- err }); inEffect {
				t.Errorf("need(%s) is met before the token was put", address)
			}
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Errorf("need = %v", err)
			}
		}
		if !s.has("orders") {
			t.Error("a fourth link has to wait, want the token of the others to serve it")
		}
		if len(s.puts) != 1 || s.puts[0] != "0s sb://contoso.servicebus.windows.net/orders" {
			t.Errorf("puts = %q, want one for orders", s.puts)
		}
		if err := s.wait("orders/$management"); err != nil || s.count() != 2 {
			t.Errorf("a node below: %v after %d puts, want a token of its own", err, s.count())
		}
	})
}

func TestATokenIsRenewedAsLongAsALinkNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if n := s.count(); n < 30 || n > 36 {
			t.Errorf("%d puts of tokens for an hour in a day, want one each 42 to 48 minutes", n)
		}
		s.release(s.got)
		before := s.count()
		time.Sleep(24 * time.Hour)
		if n := s.count(); n != before {
			t.Errorf("%d puts when no link was left, want none", n-before)
		}
		if err := s.wait("orders"); err != nil || s.count() != before+1 {
			t.Errorf("a link that comes later: %v after %d puts, want one put", err, s.count()-before)
		}
	})
}

func TestALinkThatComesBackFindsItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		for range 10 {
			if err := s.wait("orders"); err != nil {
				t.Fatal(err)
			}
			s.release(s.got)
			time.Sleep(time.Minute)
		}
		if n := s.count(); n != 1 {
			t.Errorf("%d puts for ten links one after the other, want 1", n)
		}
		time.Sleep(45 * time.Minute) // what is left is less than a link should begin with
		if err := s.wait("orders"); err != nil || s.count() != 2 {
			t.Errorf("a link before the end of the token: %v after %d puts, want a new one", err, s.count())
		}
	})
}

func TestARefusedTokenRefusesTheLinks(t *testing.T) {
	for _, c := range []struct {
		res  response
		want amqp.Symbol
	}{
		{response{401, "InvalidSignature: secret", condAuthFailed}, amqp.ErrCondUnauthorizedAccess},
		{response{404, "The messaging entity could not be found.", amqp.ErrCondNotFound}, amqp.ErrCondNotFound},
		{response{404, "", ""}, amqp.ErrCondNotFound},
		{response{503, "busy", condServerBusy}, condServerBusy},
		{response{503, "busy", ""}, condServerBusy},
		{response{408, "", ""}, condTimeout},
		{response{0, "", ""}, amqp.ErrCondInternalError},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTokenScene(t)
			s.answer = func(int) (response, error) { return c.res, nil }
			err := s.wait("orders")
			if err == nil || err.Condition != c.want {
				t.Fatalf("status %d refuses with %v, want %s", c.res.status, err, c.want)
			}
			if said := fmt.Sprint(err, s.failures()); strings.Contains(said, "secret") {
				t.Errorf("the refusal shows the token: %s", said)
			}
			s.release(s.got)
			if len(s.claims) != 0 {
				t.Errorf("%d claims are kept after a refusal, want none", len(s.claims))
			}
			s.answer = func(int) (response, error) { return response{status: 200}, nil }
			if err := s.wait("orders"); err != nil {
				t.Errorf("the next link = %v, want it to be let in", err)
			}
		})
	}
}

func TestAFailedRenewalIsTriedAgainUntilTheTokenLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		s.breakTokens(errors.New("the identity provider is down"))
		time.Sleep(50 * time.Minute)
		if n := len(s.failures()); n < 2 {
			t.Errorf("%d failures logged after 50 minutes, want some", n)
		}
		if !s.has("orders") {
			t.Error("a link has to wait though the token still holds")
		}
		s.breakTokens(nil)
		time.Sleep(2 * time.Minute)
		if s.count() != 2 {
			t.Errorf("%d puts when the provider is back, want 2", s.count())
		}

		s.failures()
		s.breakTokens(errors.New("and down again"))
		time.Sleep(2 * time.Hour)
		if n := len(s.failures()); n < 5 || n > 60 {
			t.Errorf("%d tries before the token lapsed, want some and then none", n)
		}
		if err := s.wait("orders"); err == nil || err.Condition != condServerBusy {
			t.Errorf("a link after the token has lapsed = %v, want %s", err, condServerBusy)
		}
		s.breakTokens(nil)
		if err := s.wait("orders"); err != nil {
			t.Errorf("a link when there are tokens again = %v", err)
		}
	})
}

func TestALostPairIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		s.answer = func(n int) (response, error) {
			if n < putTries {
				return response{}, fmt.Errorf("%w: %w", errPairLost, amqp.Errorf(amqp.ErrCondLinkDetachForced, "idle"))
			}
			return response{status: 202}, nil
		}
		if err := s.wait("orders"); err != nil || s.count() != putTries {
			t.Errorf("%v after %d puts, want a token after %d", err, s.count(), putTries)
		}
		s.answer = func(int) (response, error) { return response{}, errPairLost }
		if err := s.wait("other"); err == nil || err.Condition != condServerBusy {
			t.Errorf("a pair that cannot be had = %v, want %s", err, condServerBusy)
		}
		if got := s.count(); got != 2*putTries {
			t.Errorf("%d puts, want %d for the token that came and as many for the one that did not", got, putTries)
		}
	})
}

func TestASilentUpstreamIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		s.delay = time.Hour
		start := time.Now()
		err := s.wait("orders")
		if err == nil || err.Condition != condTimeout || time.Since(start) != putTimeout {
			t.Errorf("%v after %v, want %s after %v", err, time.Since(start), condTimeout, putTimeout)
		}
	})
}

func TestTheEndOfAConnectionEndsItsPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		s.delay = time.Hour
		for i := range 100 {
			s.need(fmt.Sprint("q", i), func(err *amqp.Error) { t.Errorf("a link got %v after the end", err) })
		}
		time.Sleep(time.Second)
		s.close() // the bubble fails if a goroutine is left
		if n := s.count(); n != putsAtOnce {
			t.Errorf("%d puts at a time, want %d", n, putsAtOnce)
		}
		s.need("late", func(err *amqp.Error) { t.Errorf("a link got %v after the end", err) })
	})
}

func TestTokensWithoutAnEndAreNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		s.tokens = func(context.Context, string) (Token, error) { return Token{Text: "secret", Type: TokenSAS}, nil }
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if !s.has("orders") || s.count() != 1 {
			t.Errorf("%d puts in two days, want 1", s.count())
		}
	})
}

// A source that gives the same token until shortly before its end, as azidentity
// does, must not be asked all the time.
func TestATokenSourceThatRemembersIsNotPestered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		var cached Token
		s.tokens = func(context.Context, string) (Token, error) {
			if time.Until(cached.Expires) < 5*time.Minute {
				cached = Token{Text: "secret", Type: TokenJWT, Expires: time.Now().Add(time.Hour)}
			}
			return cached, nil
		}
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if n := s.count(); n > 120 {
			t.Errorf("%d puts in a day, want at most five an hour", n)
		}
		if logs := s.failures(); len(logs) > 0 {
			t.Errorf("failures: %v", logs)
		}
	})
}

func TestClaimsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		for i := range maxClaims {
			if err := s.wait(fmt.Sprint("q", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.wait("more"); err == nil || err.Condition != amqp.ErrCondResourceLimitExceeded {
			t.Errorf("a link to one address too many = %v, want %s", err, amqp.ErrCondResourceLimitExceeded)
		}
		s.release(s.got)
		s.release(s.claims["q7"])
		if err := s.wait("more"); err != nil {
			t.Errorf("a link when another is gone = %v", err)
		}
		if !s.has(strings.Repeat("x", maxAddress+1)) || !s.has("") {
			t.Error("an address that nothing can have waits for a token")
		}
		if n := len(s.claims); n > maxClaims {
			t.Errorf("%d claims, want at most %d", n, maxClaims)
		}
	})
}

func TestOtherTokensArePutAtOnceForEveryLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		if err := s.wait("bills"); err != nil {
			t.Fatal(err)
		}
		s.release(s.got) // no link needs bills
		s.renew()
		synctest.Wait()
		if n := s.count(); n != 3 || !strings.HasSuffix(s.puts[2], "/orders") {
			t.Errorf("puts = %q, want one more for orders", s.puts)
		}
		if err := s.wait("bills"); err != nil || s.count() != 4 {
			t.Errorf("a link that comes later: %v after %d puts, want another put", err, s.count())
		}
	})
}

// The token on its way may be one that is refused by now.
func TestATokenOnItsWayIsFollowedByAnother(t *testing.T) {
	for _, status := range []int32{202, 401} {
		synctest.Test(t, func(t *testing.T) {
			s := newTokenScene(t)
			s.delay = time.Second
			s.answer = func(n int) (response, error) {
				if n == 1 {
					return response{status: status}, nil
				}
				return response{status: 202}, nil
			}
			result := make(chan *amqp.Error, 1)
			go func() { result <- s.wait("orders") }()
			synctest.Wait()
			s.renew()
			if err := <-result; err != nil || s.count() != 2 {
				t.Errorf("first answer %d: the link gets %v after %d puts, want nil after 2", status, err, s.count())
			}
			if failures := s.failures(); len(failures) > 0 {
				t.Errorf("first answer %d: %v is reported", status, failures)
			}
		})
	}
}

func TestALinkKeepsItsTokenWhileAnotherIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenScene(t)
		if err := s.wait("orders"); err != nil {
			t.Fatal(err)
		}
		s.answer = func(int) (response, error) { return response{status: 401}, nil }
		s.renew()
		synctest.Wait()
		if !s.has("orders") {
			t.Error("a link has to wait, want the former token to serve it")
		}
		if failures := s.failures(); len(failures) != 1 {
			t.Errorf("reported: %v, want the refusal", failures)
		}
	})
}
