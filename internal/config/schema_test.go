// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compiled is the schema, as an independent implementation reads it.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	b, err := json.Marshal(Schema())
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("overdue.schema.json", parsed); err != nil {
		return nil, err
	}
	return c.Compile("overdue.schema.json")
})

// bySchema is what the schema has against a file.
func bySchema(t *testing.T, text string) error {
	t.Helper()
	s, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if v, err = jsonschema.UnmarshalJSON(strings.NewReader(string(b))); err != nil {
		t.Fatal(err)
	}
	if v == nil {
		return nil // an empty file
	}
	return s.Validate(v)
}

func TestSchemaRefusesWhatIsNoSetting(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown key":              "lisen: {}",
		"an unknown key of an entity": "monitor: {entities: [{queue: q, deadlin: 1s}]}",
		"a duration without a unit":   "shutdownTimeout: 30",
		"a duration that is none":     "shutdownTimeout: soon",
		"a choice that is none":       "companions: some",
		"a number out of bounds":      "proxy: {maxInFlight: 0}",
		"a bool that is none":         "log: {frames: yes}",
		"a list for a mapping":        "listen: [a]",
		"a mapping for a value":       "monitorQueue: {a: b}",
		"an address without a port":   "listen: {http: localhost}",
		"a URL that is none":          "alerts: [{webhook: {url: somewhere}}]",
		"a queue without a name":      "broker: {queues: [{lockDuration: 1m}]}",
	} {
		t.Run(name, func(t *testing.T) {
			if err := bySchema(t, text); err == nil {
				t.Errorf("the schema takes %s", text)
			}
		})
	}
}

// The printed text is a configuration, and the same one.
func TestPrintedConfigurationLoads(t *testing.T) {
	text := docHead[strings.Index(docHead, "```yaml\n")+8 : strings.LastIndex(docHead, "```")]
	text += "log: {level: debug}\ncanary: {queue: canary, interval: 30s}\nlisten: {tls: {hosts: [a, b]}}\n"
	text = strings.Replace(text, "listen:\n  http: 127.0.0.1:5300\n  admin: 127.0.0.1:9095\n", "", 1)
	text = strings.Replace(text, `"http://127.0.0.1:9999/hook"`, `"http://127.0.0.1:9999"`, 1)
	for _, given := range []bool{false, true} {
		c, err := load(t, text, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := c.Sources.YAML(given)
		if err != nil {
			t.Fatal(err)
		}
		again := strings.ReplaceAll(string(printed), "/(hidden)", "")
		c2, err := load(t, again, nil, nil)
		if err != nil {
			t.Fatalf("what is printed does not load: %v\n%s", err, again)
		}
		if diff := cmp.Diff(c.Sources.raw, c2.Sources.raw); diff != "" {
			t.Errorf("loaded again it is another (given = %v):\n%s", given, diff)
		}
	}
}
