// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/httpapitest"
	"overdue/internal/testing/pipenet"
)

const (
	apiHost  = "namespace.test"
	otherKey = "bGlzdGVu"
)

// served is a broker with keys, and its administration API on a network in memory.
type served struct {
	*testing.T
	ns  *broker.Namespace
	net *pipenet.Network
}

func serve(t *testing.T) *served {
	t.Helper()
	b, err := broker.New(broker.Config{Keys: []broker.AuthorizationRule{
		{KeyName: "manager", PrimaryKey: "bWFuYWdl", Send: true, Listen: true, Manage: true},
		{KeyName: "app", PrimaryKey: otherKey, Send: true, Listen: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{T: t, ns: b.Default(), net: pipenet.New()}
	ln, err := s.net.Listen(apiHost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.net.Cut() })
	httpapitest.Serve(t, b, ln)
	return s
}

// admin is the API as the holder of a key sees it.
func (s *served) admin(keyName, key string) *Admin {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return s.net.Dial(ctx, host)
	}}
	s.Cleanup(transport.CloseIdleConnections)
	return &Admin{
		Endpoints: []string{"http://" + apiHost},
		Client:    &http.Client{Transport: transport},
		Authorize: func(_ context.Context, audience string) (string, error) {
			return sas.Make(keyName, key, audience, time.Now().Add(time.Hour)), nil
		},
	}
}

func (s *served) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func TestTheAdministrationAPISaysHowEntitiesWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		_, err := s.ns.CreateQueue(broker.QueueConfig{Name: "plain"})
		s.must(err)
		_, err = s.ns.CreateTopic(broker.TopicConfig{
			Name: "a/Events-and.more", DefaultMessageTimeToLive: 90 * time.Minute, RequiresDuplicateDetection: true, EnablePartitioning: true,
		})
		s.must(err)
		_, err = s.ns.CreateQueue(broker.QueueConfig{
			Name: "full", DefaultMessageTimeToLive: 36 * time.Hour, LockDuration: 2 * time.Minute, AutoDeleteOnIdle: time.Hour,
			RequiresSession: true, DeadLetteringOnMessageExpiration: true, ForwardDeadLetteredMessagesTo: "plain",
		})
		s.must(err)
		_, err = s.ns.CreateQueue(broker.QueueConfig{Name: "on", ForwardTo: "plain"})
		s.must(err)
		a := s.admin("manager", "bWFuYWdl")
		for name, want := range map[string]Info{
			"plain": {Kind: Queue, LockDuration: time.Minute},
			"FULL": {
				Kind: Queue, DefaultMessageTimeToLive: 36 * time.Hour, LockDuration: 2 * time.Minute, AutoDeleteOnIdle: time.Hour,
				RequiresSession: true, DeadLetteringOnMessageExpiration: true, ForwardDeadLetteredMessagesTo: "plain",
			},
			"on":                {Kind: Queue, LockDuration: time.Minute, ForwardTo: "plain"},
			"a/Events-and.more": {Kind: Topic, DefaultMessageTimeToLive: 90 * time.Minute, RequiresDuplicateDetection: true, Partitioned: true},
		} {
			want.CreatedAt, want.UpdatedAt = time.Now().UTC(), time.Now().UTC()
			got, err := a.Read(t.Context(), name)
			got.MaxMessageSize = 0 // as the broker is configured
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("Read(%q): %v, -want +got:\n%s", name, err, diff)
			}
		}
		for _, name := range []string{"missing", "a", "a/Events-and.more/Subscriptions/s"} {
			if _, err := a.Read(t.Context(), name); !errors.Is(err, ErrNotFound) {
				t.Errorf("Read(%q) = %v, want ErrNotFound", name, err)
			}
		}
	})
}

func TestATopicIsReadWithAllItsSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		_, err := s.ns.CreateTopic(broker.TopicConfig{Name: "events"})
		s.must(err)
		const n = 2*pageSize + 7
		for i := range n {
			cfg := broker.SubscriptionConfig{Name: fmt.Sprintf("S%03d", n-i)}
			if i == 0 {
				cfg.DefaultMessageTimeToLive, cfg.RequiresSession, cfg.DeadLetteringOnMessageExpiration = time.Hour, true, true
				cfg.LockDuration, cfg.AutoDeleteOnIdle = 30*time.Second, 10*time.Minute
			}
			_, err := s.ns.CreateSubscription("events", cfg)
			s.must(err)
		}
		info, err := s.admin("manager", "bWFuYWdl").Read(t.Context(), "Events")
		s.must(err)
		if len(info.Subscriptions) != n || info.Subscriptions[0].Name != "S001" {
			t.Fatalf("%d subscriptions, the first of them %q, want %d in order", len(info.Subscriptions), info.Subscriptions[0].Name, n)
		}
		want := Subscription{
			Name: fmt.Sprintf("S%03d", n), DefaultMessageTimeToLive: time.Hour, LockDuration: 30 * time.Second, AutoDeleteOnIdle: 10 * time.Minute,
			RequiresSession: true, DeadLetteringOnMessageExpiration: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
		}
		if diff := cmp.Diff(want, info.Subscriptions[n-1]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestARefusedClientLearnsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		_, err := s.ns.CreateQueue(broker.QueueConfig{Name: "orders"})
		s.must(err)
		for _, a := range []*Admin{s.admin("app", otherKey), s.admin("manager", "d3Jvbmc=")} {
			_, err := a.Read(t.Context(), "orders")
			if !errors.Is(err, ErrNoRight) || !strings.Contains(err.Error(), `"orders"`) || !strings.Contains(err.Error(), "401") {
				t.Errorf("Read = %v, want ErrNoRight with what the namespace says", err)
			}
		}
		unsigned := s.admin("", "")
		unsigned.Authorize = func(context.Context, string) (string, error) { return "", errors.New("no identity is at hand") }
		if _, err := unsigned.Read(t.Context(), "orders"); err == nil || errors.Is(err, ErrNoRight) || !strings.Contains(err.Error(), "no identity") {
			t.Errorf("Read = %v, want what kept it from signing in", err)
		}
	})
}

// The store in front of the API, through changes of all kinds.
func TestWhatChangesInTheNamespaceIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		_, err := s.ns.CreateTopic(broker.TopicConfig{Name: "events"})
		s.must(err)
		store := New(Config{Source: s.admin("manager", "bWFuYWdl")})
		t.Cleanup(store.Close)
		// within looks the entity up every second until check returns true, as sends would.
		within := func(most time.Duration, what string, check func(Info, error) bool) {
			t.Helper()
			began := time.Now()
			for !check(store.Lookup(t.Context(), "events")) {
				if time.Since(began) > most {
					t.Fatalf("%s is not noticed within %v", what, most)
				}
				time.Sleep(time.Second)
			}
		}
		within(0, "the topic", func(i Info, err error) bool { return err == nil && i.Kind == Topic && len(i.Subscriptions) == 0 })
		_, err = s.ns.CreateSubscription("events", broker.SubscriptionConfig{Name: "audit"})
		s.must(err)
		within(70*time.Second, "a new subscription", func(i Info, _ error) bool { return len(i.Subscriptions) == 1 })
		_, err = s.ns.UpdateTopic(broker.TopicConfig{Name: "events", DefaultMessageTimeToLive: time.Hour})
		s.must(err)
		within(70*time.Second, "an update", func(i Info, _ error) bool { return i.DefaultMessageTimeToLive == time.Hour })
		s.net.Stall(pipenet.Both)
		time.Sleep(10 * time.Minute)
		if i, err := store.Lookup(t.Context(), "events"); err != nil || i.DefaultMessageTimeToLive != time.Hour {
			t.Errorf("Lookup while nothing comes = %+v, %v, want what was known", i, err)
		}
		s.net.Resume(pipenet.Both)
		s.must(s.ns.DeleteTopic("events"))
		within(70*time.Second, "that it was deleted", func(_ Info, err error) bool { return errors.Is(err, ErrNotFound) })
		_, err = s.ns.CreateQueue(broker.QueueConfig{Name: "events", DefaultMessageTimeToLive: time.Minute})
		s.must(err)
		within(3*time.Second, "that it was made again", func(i Info, err error) bool { return err == nil && i.Kind == Queue })
	})
}

// answers is a server with prepared answers.
type answers struct {
	status int
	header http.Header
	body   string
	paths  []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.paths = append(a.paths, r.URL.String())
	if a.status == 0 || r.URL.Host == "wrong.test" {
		return nil, errors.New("malformed HTTP response")
	}
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func TestStrangeAnswersAreErrors(t *testing.T) {
	entry := func(content string) string {
		return `<entry xmlns="http://www.w3.org/2005/Atom"><title>orders</title><content type="application/xml">` + content + `</content></entry>`
	}
	for _, c := range []struct {
		status int
		body   string
		want   error // nil: one that another try may not meet
		text   string
	}{
		{200, "", nil, "not one of the administration API"},
		{200, "<html><body>Sign in to the hotel's network</body></html>", nil, `document of "html"`},
		{200, "<entry/>", nil, "no description"},
		{200, entry(""), nil, "no description"},
		{200, entry("<QueueDescription><DefaultMessageTimeToLive>soon</DefaultMessageTimeToLive></QueueDescription>"), nil, `"soon"`},
		{200, entry("<QueueDescription><RequiresSession>perhaps</RequiresSession></QueueDescription>"), nil, "perhaps"},
		{200, entry("<RelayDescription/>"), nil, "no description"},
		{200, "<feed><title>Publicly Listed Services</title></feed>", ErrNotFound, ""},
		{200, strings.Repeat("<a>", 1000), nil, ""},
		{200, strings.Repeat(" ", maxAnswer+1), nil, "more than"},
		{401, "<Error><Code>401</Code><Detail>Manage,EntityRead claims\n required.</Detail></Error>", ErrNoRight, "EntityRead claims required."},
		{403, "Ip has been prevented to connect", ErrNoRight, "403"},
		{404, "<Error><Code>404</Code><Detail>Entity does not exist.</Detail></Error>", ErrNotFound, "does not exist"},
		{404, "", nil, "404"},
		{404, "<html><Detail>nothing here</Detail></html>", nil, "404"},
		{500, "<Error><Code>500</Code><Detail>" + strings.Repeat("ä", 1000) + "</Detail></Error>", nil, "…"},
		{302, "", nil, "302"},
	} {
		a := &Admin{Endpoints: []string{"https://namespace.test"}, Client: &http.Client{Transport: &answers{status: c.status, body: c.body}}}
		_, err := a.Read(t.Context(), "orders")
		if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && final(err) || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 1000 {
			t.Errorf("%d %.80s: %v, want %v with %q", c.status, c.body, err, c.want, c.text)
		}
	}
}

// A topic that is deleted while it is read is not one without subscriptions.
func TestATopicThatIsGoneHasNoSubscriptionsToRead(t *testing.T) {
	pages := map[string]string{
		"/events":               `<entry><title>events</title><content><TopicDescription/></content></entry>`,
		"/events/Subscriptions": `<feed><title type="text">Publicly Listed Services</title></feed>`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, pages[r.URL.Path]) }))
	defer server.Close()
	a := &Admin{Endpoints: []string{server.URL}, Client: server.Client()}
	if _, err := a.Read(t.Context(), "events"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Read = %v, want ErrNotFound", err)
	}
}

func TestABusyNamespaceSaysUntilWhen(t *testing.T) {
	for header, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999999999": 0} {
		a := &Admin{Endpoints: []string{"https://namespace.test"}, Client: &http.Client{
			Transport: &answers{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {header}}},
		}}
		_, err := a.Read(t.Context(), "orders")
		var later interface{ RetryAfter() time.Duration }
		if !errors.As(err, &later) || later.RetryAfter() != want {
			t.Errorf("Retry-After %q: %v, want %v", header, err, want)
		}
	}
}

// An emulator's port may be one that speaks AMQP alone.
func TestTheEndpointThatAnswersIsTaken(t *testing.T) {
	server := &answers{status: 200, body: `<entry><content><QueueDescription><LockDuration>PT30S</LockDuration></QueueDescription></content></entry>`}
	a := &Admin{Endpoints: []string{"http://wrong.test", "http://right.test:5300"}, Client: &http.Client{Transport: server}}
	for range 3 {
		if info, err := a.Read(t.Context(), "a/b c"); err != nil || info.LockDuration != 30*time.Second {
			t.Fatalf("Read = %+v, %v", info, err)
		}
	}
	right := "http://right.test:5300/a/b%20c?api-version=2021-05"
	if diff := cmp.Diff([]string{"http://wrong.test/a/b%20c?api-version=2021-05", right, right, right}, server.paths); diff != "" {
		t.Errorf("requests, -want +got:\n%s", diff)
	}
	server.status = 0
	if _, err := a.Read(t.Context(), "orders"); err == nil || final(err) {
		t.Errorf("Read = %v, want an error that another try may not meet", err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("<feed><entry><title>s</title><content><SubscriptionDescription><LockDuration>PT1M</LockDuration></SubscriptionDescription></content></entry></feed>"))
	f.Add([]byte("<entry><content><QueueDescription><DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive><ForwardTo>sb://h/a</ForwardTo></QueueDescription></content></entry>"))
	f.Add([]byte("<entry><content><TopicDescription><MaxMessageSizeInKilobytes>-1</MaxMessageSizeInKilobytes></TopicDescription></content></entry>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := parse(bytes.Clone(body))
		if err != nil {
			return
		}
		if info, _, err := entityOf(answer); err == nil && (info.Kind == 0 || info.DefaultMessageTimeToLive < 0 || info.LockDuration < 0 || info.MaxMessageSize < 0) {
			t.Errorf("%q is %+v", body, info)
		}
		for _, e := range answer.Entries {
			if s, err := subscriptionOf(e); err == nil && (s.Name == "" || s.DefaultMessageTimeToLive < 0) {
				t.Errorf("%q has %+v", body, s)
			}
		}
	})
}
