// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

// layerOf is a layer of values that no source has checked.
func layerOf(values map[string]any) *layer {
	l := newLayer(nil)
	l.values = values
	return l
}

func mergeOf(t *testing.T, layers ...map[string]any) *Config {
	t.Helper()
	var all []*layer
	for _, values := range layers {
		all = append(all, layerOf(values))
	}
	c, err := merge(all)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestALaterLayerReplacesValuesAndListsAndJoinsSections(t *testing.T) {
	c := mergeOf(t,
		map[string]any{
			"monitorQueue": "first", "log": map[string]any{"level": "info", "format": "json"},
			"broker": map[string]any{"alsoListen": []string{"a:1", "b:2"}, "queues": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}},
		},
		map[string]any{
			"monitorQueue": "second", "log": map[string]any{"level": "warn"},
			"broker": map[string]any{"alsoListen": []string{"c:3"}, "queues": []any{map[string]any{"name": "c"}}},
		},
		map[string]any{"broker": map[string]any{}},
	)
	if c.MonitorQueue != "second" || c.Log.Level != "warn" || c.Log.Format != "json" {
		t.Errorf("monitorQueue, log = %q, %+v, want second, and warn of the second layer with json of the first", c.MonitorQueue, c.Log)
	}
	if diff := cmp.Diff([]string{"c:3"}, c.Broker.AlsoListen); diff != "" {
		t.Errorf("alsoListen (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Queue{{QueueConfig: broker.QueueConfig{Name: "c"}}}, c.Broker.Queues); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	want := map[string]any{
		"monitorQueue": "second", "log": map[string]any{"level": "warn", "format": "json"},
		"broker": map[string]any{"alsoListen": []string{"c:3"}, "queues": []any{map[string]any{"name": "c"}}},
	}
	if diff := cmp.Diff(want, c.Sources.raw); diff != "" {
		t.Errorf("raw (-want +got):\n%s", diff)
	}
}

func TestAnEmptyStringOfALaterLayerIsAValue(t *testing.T) {
	c := mergeOf(t,
		map[string]any{"redis": "redis://localhost", "journal": map[string]any{"directory": "/var/lib"}},
		map[string]any{"redis": "", "journal": map[string]any{"directory": ""}},
	)
	if c.Redis != "" || c.Journal.Directory != "" {
		t.Errorf("redis, journal.directory = %q, %q, want both empty", c.Redis, c.Journal.Directory)
	}
}

func TestAnEmptyStringIsTheZeroOfANumberAndOfABool(t *testing.T) {
	c := mergeOf(t, map[string]any{
		"proxy": map[string]any{"maxInFlight": ""},
		"log":   map[string]any{"frames": ""},
	})
	if c.Proxy.MaxInFlight != 0 || c.Log.Frames {
		t.Errorf("maxInFlight, frames = %d, %v, want 0, false", c.Proxy.MaxInFlight, c.Log.Frames)
	}
}

func TestValuesOfOtherTypesAreConverted(t *testing.T) {
	c := mergeOf(t, map[string]any{
		"monitorQueue": 5, "proxy": map[string]any{"maxInFlight": "7"}, "log": map[string]any{"frames": "true"},
		"shutdownTimeout": "90s", "broker": map[string]any{"alsoListen": "a:1"},
	})
	got := []any{c.MonitorQueue, c.Proxy.MaxInFlight, c.Log.Frames, c.ShutdownTimeout, c.Broker.AlsoListen}
	if diff := cmp.Diff([]any{"5", int64(7), true, 90 * time.Second, []string{"a:1"}}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestAValueOfAnImpossibleTypeIsAnErrorThatNamesTheKey(t *testing.T) {
	_, err := merge([]*layer{layerOf(map[string]any{"log": map[string]any{"frames": "perhaps"}})})
	if err == nil || !strings.Contains(err.Error(), "log.frames") {
		t.Errorf("error = %v, want one that names log.frames", err)
	}
}

func TestTheRequestOfAWebhookIsWrittenAmongItsOwnKeys(t *testing.T) {
	c := mergeOf(t, map[string]any{"alerts": []any{
		map[string]any{"name": "hook", "webhook": map[string]any{"url": "http://localhost", "urlFile": "", "timeout": 3 * time.Second, "grouped": true}},
	}})
	want := []Alert{{Name: "hook", Webhook: &Webhook{Server: Server{Request: Request{URL: "http://localhost"}}, Timeout: 3 * time.Second, Grouped: true}}}
	if diff := cmp.Diff(want, c.Alerts, cmp.AllowUnexported(Alert{}, Webhook{})); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

func TestOnlyTheSinkThatIsGivenIsNotNil(t *testing.T) {
	c := mergeOf(t, map[string]any{"alerts": []any{map[string]any{"name": "mail", "email": map[string]any{}}, map[string]any{"name": "none"}}})
	if diff := cmp.Diff([]Alert{{Name: "mail", Email: &Email{}}, {Name: "none"}}, c.Alerts, cmp.AllowUnexported(Alert{}, Webhook{})); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// Names that are the user's own may have dots, and are no paths.
func TestKeysWithDotsStayWhole(t *testing.T) {
	properties := map[string]any{"a.b": 7, "a": "x", "a.b.c": true}
	c := mergeOf(t, map[string]any{"broker": map[string]any{"topics": []any{map[string]any{"subscriptions": []any{map[string]any{
		"rules": []any{map[string]any{"correlation": map[string]any{"properties": properties}}},
	}}}}}})
	if diff := cmp.Diff(properties, c.Broker.Topics[0].Subscriptions[0].Rules[0].Correlation.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

// Keep writes into raw, and a reload keeps the layers' values in two configurations.
func TestTheRawSettingsAreSharedWithNobody(t *testing.T) {
	values := func() map[string]any {
		return map[string]any{
			"log":    map[string]any{"level": "info"},
			"alerts": []any{map[string]any{"name": "x", "events": []string{"missed"}}},
		}
	}
	first, second := values(), map[string]any{"broker": map[string]any{"alsoListen": []string{"a:1"}}}
	c := mergeOf(t, first, second)
	put(c.Sources.raw, "log.level", "debug")
	put(c.Sources.raw, "broker.alsoListen", []string{"b:2"})
	element := c.Sources.raw["alerts"].([]any)[0].(map[string]any)
	element["name"] = "y"
	element["events"].([]string)[0] = "met"
	if diff := cmp.Diff(values(), first); diff != "" {
		t.Errorf("a change of raw reached a layer (-want +got):\n%s", diff)
	}
	if want := map[string]any{"broker": map[string]any{"alsoListen": []string{"a:1"}}}; !cmp.Equal(want, second) {
		t.Errorf("a change of raw reached a layer: %v, want %v", second, want)
	}
	if c.Log.Level != "info" || c.Alerts[0].Name != "x" || !slices.Equal(c.Alerts[0].Events, []string{"missed"}) {
		t.Errorf("a change of raw reached the settings: %+v, %+v", c.Log, c.Alerts)
	}
	c.Broker.AlsoListen[0] = "c:3"
	if want := []string{"a:1"}; !slices.Equal(second["broker"].(map[string]any)["alsoListen"].([]string), want) {
		t.Errorf("a change of the settings reached a layer: %v", second)
	}
}
