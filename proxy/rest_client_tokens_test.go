// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
	"overdue/proxy/proven"
	"overdue/scheduler"
)

// Keys of the namespace that clients have.
var (
	sendKey   = broker.AuthorizationRule{KeyName: "send", PrimaryKey: "c2VuZA==", Send: true} // of the queue mine alone
	listenKey = broker.AuthorizationRule{KeyName: "listen", PrimaryKey: "bGlzdGVu", Listen: true}
)

// setupClients starts a scene whose namespace judges the clients of the endpoints.
func setupClients(t *testing.T, change ...func(*setting)) *amqpScene {
	t.Helper()
	return setupREST(t, append([]func(*setting){func(s *setting) {
		s.broker.Keys = []broker.AuthorizationRule{brokertest.Key(), listenKey}
		s.broker.Queues = []broker.QueueConfig{{Name: "mine", AuthorizationRules: []broker.AuthorizationRule{sendKey}}}
		s.proxy.ClientTokens = true
	}}, change...)...)
}

// signed is a token of a key for a queue that is good for an hour.
func signed(k broker.AuthorizationRule, queue string) string {
	return sas.Make(k.KeyName, k.PrimaryKey, "https://"+namespaceName+"/"+queue, time.Now().Add(time.Hour))
}

// A send over REST goes on with the token that its client shows. Its message has what the
// companion needs, and nothing else is changed.
func TestSendsOfClientsOverRESTPassOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupClients(t, func(s *setting) {
			s.proxy.Settings = func(string) Settings { return Settings{Monitored: true, StampTTL: true} }
		})
		c := sc.browser()
		token := signed(sendKey, "mine")
		send := func(body string, headers ...string) {
			t.Helper()
			a := sc.ask(c, "POST", "/mine/messages?timeout=60&api-version=2015-01", body, append(headers, "Authorization", token)...)
			sc.wantAnswer("send", a, http.StatusCreated, "")
			if a.body != "" {
				t.Errorf("body %q of a success, want none", a.body)
			}
		}
		send("one", "OVERDUE-WITHIN", `"30s"`, "orderId", "7", "brokerproperties", `{"Label":"žluť","TimeToLive":3600}`)
		send("two", "Content-Type", "text/plain") // no deadline: nothing is added
		send(`[{"Body":"three","BrokerProperties":{"MessageId":"m3"},"UserProperties":{"overdue-within":"40s","n":1}},{"Body":"four","UserProperties":{"overdue-within":"50s"}}]`,
			"Content-Type", "application/vnd.microsoft.servicebus.json")

		var got []string
		ids := map[string]string{}
		for _, m := range sc.messages("mine") {
			ids[string(m.Body)] = m.MessageID
			ttl, label := time.Duration(0), ""
			if m.TimeToLive != nil && *m.TimeToLive < 100*24*time.Hour {
				ttl = *m.TimeToLive
			}
			if m.Subject != nil {
				label = *m.Subject
			}
			got = append(got, fmt.Sprint(string(m.Body), " ", ttl, " ", label, " ", m.ApplicationProperties))
		}
		want := []string{
			"one 30s žluť map[orderId:7 overdue-within:30s]", "two 0s  map[]",
			"three 40s  map[n:1 overdue-within:40s]", "four 50s  map[overdue-within:50s]",
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		var named []string
		for _, companion := range sc.companions() {
			if companion.Entity != "mine" {
				t.Errorf("companion for %q, want mine", companion.Entity)
			}
			for _, r := range companion.References {
				named = append(named, r.MessageID)
			}
		}
		if want := []string{ids["one"], "m3", ids["four"]}; !slices.Equal(named, want) {
			t.Errorf("companions name %q, want %q", named, want)
		}
		if n := sc.sends("mine", resultMonitored); n != 3 {
			t.Errorf("%v monitored sends are counted, want 3", n)
		}
	})
}

// The namespace checks the token, and its client gets the answer unchanged. Nobody has a companion
// written before that.
func TestTheNamespaceJudgesWhoSendsOverREST(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupClients(t)
		direct := func(ctx context.Context) (net.Conn, error) { return sc.ns.Net.Dial(ctx, namespaceName) }
		past := sas.Make(sendKey.KeyName, sendKey.PrimaryKey, "https://"+namespaceName+"/mine", time.Now().Add(-time.Minute))
		wrong := sendKey
		wrong.PrimaryKey = "d3Jvbmc="
		for name, test := range map[string]struct{ token, queue, say string }{
			"no token":                 {"", "mine", "MissingToken"},
			"nonsense":                 {"Basic eDp5", "mine", "<Code>401</Code>"},
			"a wrong key":              {signed(wrong, "mine"), "mine", "InvalidSignature"},
			"an expired token":         {past, "mine", "ExpiredToken"},
			"a token for another":      {signed(sendKey, "mine"), "orders", "<Code>401</Code>"},
			"a key of another":         {signed(sendKey, "orders"), "orders", "<Code>401</Code>"},
			"a key that may not send":  {signed(listenKey, "mine"), "mine", "'Send' claim"},
			"a queue that there isn't": {signed(brokertest.Key(), "missing"), "missing", "<Error>"},
		} {
			request := "POST /" + test.queue + "/messages HTTP/1.1\r\nHost: " + namespaceName + "\r\nConnection: close\r\nOverdue-Within: \"30s\"\r\nContent-Length: 1\r\n"
			if test.token != "" {
				request += "Authorization: " + test.token + "\r\n"
			}
			want := exchange(t, direct, request+"\r\nx")
			got := exchange(t, sc.dial, request+"\r\nx")
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-direct +behind the endpoint):\n%s", name, diff)
			}
			if answer := strings.Join(got, "\n"); !strings.Contains(answer, test.say) || strings.Contains(answer, " 201 ") {
				t.Errorf("%s = %s, want a refusal with %q", name, answer, test.say)
			}
		}
		sc.wantCompanions(0)

		// Even a token with the right to send gives no access to the monitor queue.
		a := sc.ask(sc.browser(), "POST", "/"+monitorQueue+"/messages", "x", "Authorization", signed(brokertest.Key(), monitorQueue))
		sc.wantAnswer("send to the monitor queue", a, http.StatusBadRequest, "monitor queue")
		if n := len(sc.messages(monitorQueue)); n != 0 {
			t.Errorf("%d messages on the monitor queue, want none", n)
		}
	})
}

// A token that has proven good is believed, for the entity it was shown for and for a while: then
// companions go together with the message again.
func TestATokenProvesItselfWithItsFirstSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messageTakes = time.Second
		taken := make(chan struct{}, 100)
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.ClientTokens = true
			upstreamSays(func(nc net.Conn, request string) {
				time.Sleep(messageTakes)
				taken <- struct{}{}
				if strings.Contains(request, "refused") {
					_, _ = io.WriteString(nc, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
					return
				}
				_, _ = io.WriteString(nc, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
			})(s)
		})
		c := sc.browser()
		// writtenFirst reports whether the companion was there before the namespace had taken the
		// message.
		writtenFirst := func(token string, status int) bool {
			t.Helper()
			before := len(sc.companions())
			answered := make(chan restAnswer, 1)
			go func() {
				answered <- sc.ask(c, "POST", "/orders/messages", "x", "Authorization", token, "overdue-within", "1h")
			}()
			time.Sleep(messageTakes / 2)
			first := len(sc.companions()) > before
			<-taken
			sc.wantAnswer("send", <-answered, status, "")
			if wrote := len(sc.companions()) > before; wrote != (status == http.StatusCreated || first) {
				t.Errorf("a companion is there: %v, after status %d", wrote, status)
			}
			time.Sleep(messageTakes)
			return first
		}
		for i, want := range []struct {
			token  string
			status int
			first  bool
			wait   time.Duration
		}{
			{"good", http.StatusCreated, false, 0},
			{"good", http.StatusCreated, true, 0},
			{"other", http.StatusCreated, false, 0},
			{"refused", http.StatusUnauthorized, false, 0},
			{"refused", http.StatusUnauthorized, false, 0},
			{"good", http.StatusCreated, true, proven.Time},
			{"good", http.StatusCreated, false, 0},
		} {
			if got := writtenFirst(want.token, want.status); got != want.first {
				t.Errorf("send %d, %s: companion before the message %v, want %v", i, want.token, got, want.first)
			}
			time.Sleep(want.wait)
		}
	})
}

// Whether the namespace has taken the message is not known when its answer does not come: the
// client sends it again, and both have companions.
func TestASendOverRESTWithoutAnAnswerIsOneToRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.ClientTokens = true
			upstreamSays(func(nc net.Conn, _ string) {
				if calls++; calls == 2 {
					nc.Close()
					return
				}
				_, _ = io.WriteString(nc, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
			})(s)
		})
		c := sc.browser()
		for i, status := range []int{http.StatusCreated, http.StatusBadGateway, http.StatusCreated} {
			a := sc.ask(c, "POST", "/orders/messages", "x", "Authorization", "good", "overdue-within", "1h", "BrokerProperties", fmt.Sprintf(`{"MessageId":"m%d"}`, max(i, 1)))
			sc.wantAnswer("send", a, status, "")
			if status != http.StatusCreated && (a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "<Error><Code>502</Code>")) {
				t.Errorf("answer %v %s, want one that asks for a retry", a.header, a.body)
			}
		}
		refs := sc.references()
		slices.SortFunc(refs, func(a, b scheduler.Reference) int { return cmp.Compare(a.MessageID, b.MessageID) })
		if len(refs) < 2 || refs[0].MessageID != "m1" || refs[len(refs)-1].MessageID != "m2" {
			t.Errorf("references %+v, want those of what was taken", refs)
		}
	})
}
