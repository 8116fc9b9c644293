// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"overdue/internal/servicebus/duration"
)

var updatePages = flag.Bool("update", false, "write the pages that are generated instead of comparing with them")

// The pages that come from the table have to be what it would generate now.
func TestReferencePagesAreFresh(t *testing.T) {
	var s bytes.Buffer
	e := json.NewEncoder(&s)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(Schema()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"docs/reference/configuration.md":      docHead + settingTables(true),
		"docs/reference/configuration-rare.md": rareHead + settingTables(false),
		"docs/reference/overdue.schema.json":   s.String(),
		"docs/reference/overdue.example.yaml":  Example(),
		chartSchema:                            valuesSchema(t),
	} {
		file := "../../" + name
		if *updatePages {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is stale; run `make docs` (-code +file):\n%s", name, diff)
		}
	}
}

const chartSchema = "deploy/helm/overdue/values.schema.json"

// valuesSchema is the schema of the values of the chart, with that of the configuration at config.
// The chart states the namespace and the addresses itself.
func valuesSchema(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile("../../" + chartSchema)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Schema())
	var c map[string]any
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	withoutText(c)
	delete(c, "$schema")
	c["description"] = "As docs/reference/configuration.md has it. The chart states namespace and listen itself"
	properties := c["properties"].(map[string]any)
	delete(properties, "namespace")
	delete(properties, "listen")
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("    ", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(file), "\n    \"config\": ")
	_, after, closed := strings.Cut(rest, "\n    }")
	if !ok || !closed {
		t.Fatal("the schema has no config")
	}
	return before + "\n    \"config\": " + strings.TrimSpace(out.String()) + after
}

// withoutText removes what no validation needs: Helm keeps the schema with each release.
func withoutText(of any) {
	switch v := of.(type) {
	case map[string]any:
		for key, value := range v {
			if _, isText := value.(string); key == "title" || key == "default" || key == "description" && isText {
				delete(v, key)
				continue
			}
			if properties, ok := value.(map[string]any); ok && key == "properties" {
				for _, p := range properties { // which may be named so themselves
					withoutText(p)
				}
				continue
			}
			withoutText(value)
		}
	case []any:
		for _, item := range v {
			withoutText(item)
		}
	}
}

// The example in the doc is what people copy, so it has to load.
func TestExampleInTheDocLoads(t *testing.T) {
	_, rest, ok := strings.Cut(docHead, "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no ```yaml block in the document")
	}
	c, err := load(t, text, nil, nil)
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	if len(c.Broker.Queues) == 0 || len(c.Monitor.Entities) == 0 || len(c.Alerts) == 0 {
		t.Errorf("the example shows no queue, entity or alert: %+v", c)
	}
}

const docHead = `# Configuration

<!-- Generated from the table in internal/config/settings.go by make docs. A test fails when it is stale. -->

These are the settings that most people need; [configuration-rare.md](configuration-rare.md) has the others.

Settings come from four sources; the later ones win: defaults, the file that --config (or ` + "`OVERDUE_CONFIG`" + `)
names, environment variables, flags. An empty variable counts as not set. An unknown key, an impossible value, and a
file that is empty or cannot be read are errors. They name the key and the line; the exit code is 2 then.

A variable whose name begins with ` + "`OVERDUE_`" + ` and that is in no table here or in [configuration-rare.md](configuration-rare.md) is an error as well. Names that Kubernetes gives containers for a
service called overdue or overdue-… pass, such as ` + "`OVERDUE_SERVICE_HOST` and `OVERDUE_PORT_5672_TCP_ADDR`" + `. ` + "`OVERDUE_UNATTENDED`" + `, which the image and the
unit of systemd set, makes ` + "`broker.enabled`" + ` false by default. Nothing replaces ` + "`${VAR}`" + ` in a file: it is an error in every value but the templates ` + "`title`" + `
and ` + "`text`" + `. Set the variable of the setting, or name a file with the key that ends in ` + "`File`" + `. Such a file is UTF-8 without a byte order mark.

` + "`overdue config check`" + ` checks all of that. ` + "`overdue config print`" + ` shows the configuration in force and the source of each value,
without secrets. ` + "`overdue config example`" + ` prints [overdue.example.yaml](overdue.example.yaml): every key with its description. ` + "`overdue config schema`" + ` prints [overdue.schema.json](overdue.schema.json) for editors with a YAML language server:
name it in the first line of the file, ` + "`# yaml-language-server: $schema=overdue.schema.json`" + `.

A running process reads the file, and the files with secrets that it names, again when one of them changes, and on SIGHUP. Settings that
take effect *at once* in the tables do so then. New entities of the embedded broker appear; those that differ or went stay as they are, and the log
names them. Changes of all other settings wait for a restart, and the log names those, too.

A changed file takes effect when two reads, 200 ms apart, have found the same content. If it lacks a sink, an entity or a key that is
in force, or the end of its last line, it takes effect only if it ends with a line of three dots (` + "`...`" + `). That is how YAML ends a document, and a file that was cut short lacks it. The log
warns of what was dropped. A restart takes the file as it is.

Other credentials of the namespace, or of Redis, take effect once they are accepted there. Until then the process refuses the changed configuration,
and tries again at least once a minute. [Rotate a key](../operate/rights.md#rotate-a-key) has the steps.

A changed file with a mistake is refused as a whole, with one sentence in the log and ` + "`overdue_config_last_reload_successful`" + ` at 0. The
previous configuration stays in force. A connection keeps the rights of its key until its token ends (with SASL PLAIN until the connection ends).
Whether the endpoints or the embedded broker ask for keys at all does not change. A process without any file has nothing to read again, and SIGHUP ends it.
Certificates are read again by themselves.

- **duration**: ` + "`30s`, `1h30m`, or `PT30S`" + ` as Service Bus writes it.
- **size**: bytes, or with a unit: ` + "`256KiB`, `1MiB`" + `.
- **path**: of a file or directory. In the file, relative paths start at the directory of that file, so they do not depend on the
  directory that a process starts in. In a variable or a flag they start at the working directory.
- **address**: ` + "`host:port`" + `, on loopback, unless its row says otherwise. Port 0 takes any free port.
- **addresses**, **names**: separated by commas, or a list in the file.
- **list**: in the file as usual; in a variable as YAML on one line, ` + "`OVERDUE_MONITOR_ENTITIES='[{queue: orders}]'`" + `.

` + "```yaml" + `
listen:
  http: 127.0.0.1:5300
  admin: 127.0.0.1:9095
broker:
  queues:
    - {name: orders, deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: 1h, lockDuration: PT30S}
monitor:
  entities:
    - queue: orders
      deadline: 30s
alerts:
  - webhook: {url: "http://127.0.0.1:9999/hook"}
  - email: {host: mail.example.com, from: overdue@example.com, to: ops@example.com}
    entities: [orders*]
    group: {wait: 30s, interval: 10m}
` + "```" + `
`

const rareHead = `# Configuration, rarely needed

<!-- Generated from the table in internal/config/settings.go by make docs. A test fails when it is stale. -->

These settings are read as those of [configuration.md](configuration.md), which says how. Pages about a subject show the ones that it needs.
` + "`overdue config example`" + ` prints all of both pages. Help does not list the flags here; they work in every command that the setting concerns.
`

// settingTables are the rows of a page, a table for each section.
func settingTables(common bool) string {
	var b strings.Builder
	section := "\x00"
	for _, s := range Settings {
		if s.Common() != common {
			continue
		}
		head, _, nested := strings.Cut(s.Path, ".")
		if head = strings.TrimSuffix(head, "[]"); !nested && s.Kind != kindList {
			head = ""
		}
		if head != section {
			section = head
			title := "`" + head + "`"
			if head == "" {
				title = "General"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| key | kind | default | variable, flag | takes effect | |\n|---|---|---|---|---|---|\n", title)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Path, s.documentedKind(), s.documentedDefault(), s.documentedSources(), takesEffect(s.Path), s.Help)
	}
	return b.String()
}

func (s *Setting) documentedKind() string {
	text := s.Kind.String()
	if s.Kind == KindChoice {
		text = "`" + strings.Join(s.Choices, "` `") + "`"
	}
	format := func(n int64) string {
		switch s.Kind {
		case kindDuration, kindDurations:
			return duration.Format(time.Duration(n))
		case kindSize:
			return FormatSize(n)
		}
		return fmt.Sprint(n)
	}
	switch {
	case s.max == 1<<63-1:
		text += ", at least " + format(s.min)
	case s.max != 0:
		text += ", " + format(s.min) + " to " + format(s.max)
	}
	return text
}

func (s *Setting) documentedDefault() string {
	switch {
	case s.need:
		return "required"
	case s.Default == "":
		return "none"
	}
	return "`" + s.Default + "`" + s.DefaultNote
}

func (s *Setting) documentedSources() string {
	if s.element() {
		return "–"
	}
	text := "`" + s.Env() + "`"
	if s.Flag {
		text += " `--" + s.FlagName() + "`"
	}
	return text
}

// The example, and every default, must be what YAML says it is.
func TestDefaultsReadBackAsYAML(t *testing.T) {
	for _, s := range Settings {
		if s.Kind == kindList || s.Kind.isMap() || s.Default == "" {
			continue
		}
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(s.Default), &n); err != nil {
			t.Errorf("default of %s: %v", s.Path, err)
			continue
		}
		got, err := s.Parse(n.Content[0].Value)
		if err != nil {
			t.Errorf("default of %s: %v", s.Path, err)
		}
		if want := s.standard(); !reflect.DeepEqual(got, want) {
			t.Errorf("default of %s = %v through YAML, want %v", s.Path, got, want)
		}
	}
}
