// SPDX-License-Identifier: Apache-2.0

package copyconfig

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/broker/entityfile"
	"overdue/internal/servicebus/entities"
)

// direct makes requests of a handler, without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.Host = r.URL.Host
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// setup returns a namespace, and its administration API behind what change makes of that.
func setup(t *testing.T, cfg broker.Config, change func(http.Handler) http.Handler) (*broker.Namespace, *entities.Admin) {
	t.Helper()
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // nothing is served
	api := adminapi.New(func(*http.Request) *broker.Namespace { return b.Default() }, adminapi.Options{})
	if change != nil {
		api = change(api)
	}
	return b.Default(), &entities.Admin{
		Endpoints: []string{"http://contoso.servicebus.windows.net"},
		Client:    &http.Client{Transport: direct{api}},
	}
}

func yaml(t *testing.T, s *broker.NamespaceSetup, remarks entityfile.Remarks) string {
	t.Helper()
	var b strings.Builder
	if err := entityfile.YAML(&b, s, remarks); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// everything is entities of all kinds, with what their descriptions can say.
func everything() broker.Config {
	text := func(s string) *string { return &s }
	return broker.Config{
		Queues: []broker.QueueConfig{
			{
				Name:                             "orders",
				LockDuration:                     30 * time.Second,
				MaxDeliveryCount:                 3,
				DefaultMessageTimeToLive:         14 * 24 * time.Hour,
				DeadLetteringOnMessageExpiration: true,
				ForwardDeadLetteredMessagesTo:    "sb://contoso.servicebus.windows.net/dead",
				Status:                           broker.SendDisabled,
				UserMetadata:                     "of the shop",
				AuthorizationRules:               []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "hidden", Send: true}},
			},
			{Name: "dead", RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: time.Minute, MaxSize: 2 << 30},
			{Name: "carts", RequiresSession: true, EnablePartitioning: true, AutoDeleteOnIdle: time.Hour},
		},
		Topics: []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "events", DefaultMessageTimeToLive: time.Hour},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "all"}},
				{
					SubscriptionConfig: broker.SubscriptionConfig{Name: "some", IgnoreFilterEvaluationExceptions: true, ForwardTo: "orders"},
					Rules: []broker.RuleConfig{
						{Name: "sql", Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "a = @p", Parameters: broker.Values{{Key: "@p", Value: int32(1)}}}}},
						{Name: "sys", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
							Label:      text("hello"),
							Properties: broker.Values{{Key: "n", Value: int64(5)}, {Key: "on", Value: true}, {Key: "since", Value: time.Unix(0, 0)}},
						}}, Action: broker.Action{SQL: "SET x = 1"}},
						{Name: "off", Filter: broker.Filter{False: true}},
					},
				},
			},
		}},
	}
}

func TestACopyHasWhatTheNamespaceHas(t *testing.T) {
	n, api := setup(t, everything(), nil)
	copied, remarks, err := Read(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	own := n.Setup()
	want, got := yaml(t, &own, nil), yaml(t, copied, remarks)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the broker's own (-) and the copy (+):\n%s", diff)
	}
	if strings.Contains(got, "hidden") || !strings.Contains(got, "AuthorizationRules: 1") {
		t.Errorf("the copy has a key, or does not say that it lacks one:\n%s", got)
	}
}

func TestThousandsOfEntitiesAreReadPageByPage(t *testing.T) {
	cfg := broker.Config{}
	for i := range 1234 {
		cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: fmt.Sprintf("q%04d", i)})
	}
	topic := broker.TopicSetup{TopicConfig: broker.TopicConfig{Name: "t"}}
	for i := range 150 {
		topic.Subscriptions = append(topic.Subscriptions, broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{Name: fmt.Sprintf("s%04d", i)}})
	}
	cfg.Topics = append(cfg.Topics, topic)
	_, api := setup(t, cfg, nil)
	copied, _, err := Read(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	if len(copied.Queues) != 1234 || copied.Queues[1233].Name != "q1233" || len(copied.Topics[0].Subscriptions) != 150 {
		t.Errorf("%d queues, %d subscriptions; want 1234 and 150", len(copied.Queues), len(copied.Topics[0].Subscriptions))
	}
}

// Azure turns away requests of its administration API that come too fast.
func TestABusyNamespaceIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		n, api := setup(t, everything(), func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if refused < 5 && !strings.Contains(r.URL.Path, "$Resources/Queues") {
					refused++
					w.Header().Set("Retry-After", "10")
					http.Error(w, "<Error><Code>429</Code><Detail>SubCode=50004. The namespace is being throttled.</Detail></Error>", http.StatusTooManyRequests)
					return
				}
				h.ServeHTTP(w, r)
			})
		})
		began := time.Now()
		copied, _, err := Read(t.Context(), api)
		if err != nil || len(copied.Queues) != len(n.Queues()) {
			t.Fatalf("Read = %v", err)
		}
		if took := time.Since(began); took < 50*time.Second {
			t.Errorf("it took %v, want the pauses that the namespace asks for", took)
		}
	})
}

func TestWhatIsRefusedIsSaid(t *testing.T) {
	refuse := func(status int, body string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) })
		}
	}
	for name, test := range map[string]struct {
		change func(http.Handler) http.Handler
		want   error
		text   string
	}{
		"no right": {refuse(http.StatusUnauthorized, "<Error><Code>401</Code><Detail>Manage claims are needed</Detail></Error>"), entities.ErrNoRight, "Manage claims"},
		"no API":   {refuse(http.StatusOK, "<html>hello</html>"), nil, "not one of the administration API"},
		"an entry without a description": {refuse(http.StatusOK,
			`<feed xmlns="http://www.w3.org/2005/Atom"><title>Queues</title><entry><title>q</title></entry></feed>`), nil, "without a name or a description"},
	} {
		t.Run(name, func(t *testing.T) {
			_, api := setup(t, broker.Config{}, test.change)
			_, _, err := Read(t.Context(), api)
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("Read = %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
}

// A property that the broker does not take is a remark, and the rest of the entity is copied.
func TestWhatTheBrokerDoesNotTakeIsARemark(t *testing.T) {
	_, api := setup(t, broker.Config{Queues: []broker.QueueConfig{{Name: "orders", MaxDeliveryCount: 7}}}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			_, _ = strings.NewReplacer("<LockDuration>PT1M</LockDuration>", "<LockDuration>soon</LockDuration>").WriteString(w, answer.Body.String())
		})
	})
	copied, remarks, err := Read(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	got := yaml(t, copied, remarks)
	for _, want := range []string{"# not copied, as the broker does not take it:", "'soon' of LockDuration", "maxDeliveryCount: 7"} {
		if !strings.Contains(got, want) {
			t.Errorf("the copy lacks %s:\n%s", want, got)
		}
	}
}
