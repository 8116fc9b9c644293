// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
)

func TestAReceiveWaits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		query  string
		sent   time.Duration // 0 = nothing is sent
		waited time.Duration
		status int
	}{
		{"for as long as the service does", "", 0, 5 * time.Second, http.StatusNoContent},
		{"for the timeout of the request", "?timeout=5", 0, 5 * time.Second, http.StatusNoContent},
		{"not at all", "?timeout=0", 0, 0, http.StatusNoContent},
		{"until a message comes", "?timeout=20", 10 * time.Second, 10 * time.Second, http.StatusCreated},
		{"for more than the deadline of a body", "?timeout=600", 500 * time.Second, 500 * time.Second, http.StatusCreated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := restSetup(t, restOptions{})
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					if tt.sent > 0 {
						time.Sleep(tt.sent)
						sc.post("/q/messages", "a")
					}
				}()
				begun := time.Now()
				a := sc.do("POST", "/q/messages/head"+tt.query, "")
				waited := time.Since(begun)
				<-sent
				if a.status != tt.status || waited != tt.waited {
					t.Errorf("status %d after %v, want %d after %v", a.status, waited, tt.status, tt.waited)
				}
			})
		})
	}
}

func TestReceiversAreServedInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		got := make(chan string, 3)
		for i := range 3 {
			go func() {
				a, err := sc.try(t.Context(), "DELETE", "/q/messages/head", "")
				if err != nil {
					t.Error(err)
				}
				got <- fmt.Sprintf("%d got %s", i, a.body)
			}()
			synctest.Wait()
		}
		for i := range 3 {
			sc.post("/q/messages", fmt.Sprint(i))
			if got, want := <-got, fmt.Sprintf("%d got %d", i, i); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

// A message that a client waited for before it went away goes to the next one, as if it had never
// been meant for the first.
func TestAClientThatGoesAwayLosesNoMessage(t *testing.T) {
	for _, method := range []string{"POST", "DELETE"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := restSetup(t, restOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := sc.try(ctx, method, "/q/messages/head", "")
					ended <- err
				}()
				synctest.Wait()
				cancel()
				if err := <-ended; err == nil {
					t.Fatal("the receive was answered, want that it was given up")
				}
				synctest.Wait()
				sc.post("/q/messages", "a")
				a := sc.do("POST", "/q/messages/head?timeout=0", "")
				sc.want("the next receive", a, http.StatusCreated, "a")
				if got := a.header.Get("BrokerProperties"); !strings.Contains(got, `"DeliveryCount":1,`) {
					t.Errorf("BrokerProperties: %s, want the first delivery", got)
				}
			})
		})
	}
}

// Clients go away at any moment, also when a message is on its way to them. Every
// message stays in the queue until somebody completes it.
func TestNoMessageIsLostWhateverClientsDo(t *testing.T) {
	seed := testseed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sc := restSetup(t, restOptions{})
		sc.ns.Net.Delay(pipenet.Both, time.Millisecond)
		const messages = 200
		got := map[string]bool{}
		for i := range messages {
			id := fmt.Sprint(i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(8000))*time.Microsecond)
			time.AfterFunc(time.Duration(rng.IntN(8000))*time.Microsecond, func() { sc.post("/q/messages", id) })
			a, err := sc.try(ctx, "POST", "/q/messages/head", "")
			cancel()
			time.Sleep(10 * time.Millisecond)
			if err == nil {
				got[a.body] = true
				sc.want("complete", sc.do("DELETE", a.header.Get("Location"), ""), http.StatusOK, "")
			}
		}
		t.Logf("%d of %d messages were received at once", len(got), messages)
		time.Sleep(2 * time.Minute) // what was locked for an answer that got lost on its way
		for {
			a := sc.do("POST", "/q/messages/head?timeout=0", "")
			if a.status == http.StatusNoContent {
				break
			}
			if got[a.body] {
				t.Errorf("message %s comes again after it was completed", a.body)
			}
			got[a.body] = true
			sc.want("complete", sc.do("DELETE", a.header.Get("Location"), ""), http.StatusOK, "")
		}
		if len(got) != messages {
			t.Errorf("%d messages were received, want %d", len(got), messages)
		}
	})
}

func TestAnEntityThatIsDeletedEndsItsReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		time.AfterFunc(10*time.Second, func() {
			if err := sc.ns.Broker.Default().DeleteQueue("q"); err != nil {
				t.Error(err)
			}
		})
		begun := time.Now()
		a := sc.do("POST", "/q/messages/head?timeout=60", "")
		sc.want("receive", a, http.StatusGone, "deleted")
		if waited := time.Since(begun); waited != 10*time.Second {
			t.Errorf("answered after %v, want 10s", waited)
		}
	})
}
