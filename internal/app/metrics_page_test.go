// SPDX-License-Identifier: Apache-2.0

package app

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/operator/inject/admission"
	"overdue/internal/testing/redistest"
)

var updatePages = flag.Bool("update", false, "write the pages that are generated instead of comparing with them")

// startRole starts a role with settings and variables, and stops it when the test ends.
func startRole(t *testing.T, r config.Role, text string) *Process {
	t.Helper()
	env := map[string]string{"OVERDUE_LISTEN_ADMIN": "127.0.0.1:0"}
	if r.Proxy {
		env["OVERDUE_LISTEN_AMQP"], env["OVERDUE_LISTEN_HTTP"] = "127.0.0.1:0", "127.0.0.1:0"
	}
	if r.Broker {
		env["OVERDUE_BROKER_LISTEN"] = "127.0.0.1:0"
	}
	c, err := loadText(t, text, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), r, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

const docMetrics = `# Metrics

<!-- Generated from what processes export, by make docs. A test fails when it is stale. -->

Every process serves these at ` + "`/metrics`" + ` of its admin port, and of ` + "`listen.probes`" + `. They come besides the metrics of the Go runtime (` + "`go_*`" + `) and of the process
(` + "`process_*`" + `). [Monitor Overdue](../operate/monitor.md) says which ones to watch.

The roles are the commands: ` + "`run`, `proxy`, `monitor`, `broker`, `inject serve`" + `. A metric that names a setting is there only with that setting. Series of configured queues and topics are at 0 from the
start. Names of other entities come from messages, so their number is bounded: further ones share the label ` + "`other`, or `(other)`" + ` for sends and the embedded broker. No series of sends, lag and outstanding deadlines counts
a canary, and each of its deadlines has the verdict ` + "`canary`" + `.

| metric | type | labels | unit | roles | meaning |
|---|---|---|---|---|---|
`

// The reference page lists what processes export, and all that the code names is exported by one.
func TestTheMetricsPageIsFresh(t *testing.T) {
	const work = "broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\nmonitor: {entities: [{queue: orders}]}\n"
	redis := "redis: \"redis://" + redistest.InMemory(t).Addr() + "\"\n"
	broker := startRole(t, config.RoleRun, work)
	client := "namespace: \"" + broker.OwnConnectionString() + "\"\nmonitor: {entities: [{queue: orders}]}\n"
	rows := map[string]*row{}
	for _, r := range []struct {
		role config.Role
		text string
	}{{config.RoleRun, work}, {config.RoleProxy, client}, {config.RoleMonitor, client}, {config.RoleBroker, "broker: {queues: [{name: orders}]}\n"}} {
		t.Run(r.role.Name, func(t *testing.T) { collect(t, rows, startRole(t, r.role, r.text), "") })
	}
	for _, f := range []struct{ setting, text string }{
		{"canary.queue", "canary: {queue: birds}\n"},
		{"alerts", "alerts: [{webhook: {url: \"http://127.0.0.1:9/\"}}]\n"},
		{"history.directory", "history: {directory: \"" + t.TempDir() + "\"}\n"},
		{"journal.directory", "onMonitorDown: pass\njournal: {directory: \"" + t.TempDir() + "\"}\n"},
		{"redis", redis},
		{"companionStore", redis + "companionStore: redis\n"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", ""},
	} {
		for _, role := range []config.Role{config.RoleRun, config.RoleProxy, config.RoleMonitor} {
			text := client
			if role.Broker {
				text = work
			}
			t.Run(role.Name+" with "+f.setting, func(t *testing.T) {
				if f.text == "" {
					t.Setenv(f.setting, "http://127.0.0.1:9/")
				}
				collect(t, rows, startRole(t, role, text+f.text), f.setting)
			})
		}
	}

	for _, role := range []config.Role{config.RoleRun, config.RoleBroker} {
		t.Run(role.Name+" with broker.directory", func(t *testing.T) {
			collect(t, rows, startRole(t, role, "broker: {directory: \""+t.TempDir()+"\", queues: [{name: orders}]}\n"), "broker.directory")
		})
	}

	webhook := prometheus.NewRegistry()
	admission.NewHandler(admission.Config{}, webhook)
	collectFrom(t, rows, webhook, "inject serve", "")

	for name, file := range namedMetrics(t) {
		if rows[name] == nil {
			t.Errorf("%s names %s, which no process here exports: start one that does", file, name)
		}
	}
	checkOpenMetrics(t, rows, broker.registry)
	var page strings.Builder
	page.WriteString(docMetrics)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		page.WriteString(rows[name].text(name))
	}
	const file = "../../docs/reference/metrics.md"
	if *updatePages {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page.String(), string(got)); diff != "" {
		t.Errorf("docs/reference/metrics.md is stale; run `make docs` (-code +file):\n%s", diff)
	}
}

// checkOpenMetrics checks that no two metrics are the same family of OpenMetrics, or share the name
// of a sample: a strict parser refuses the whole page. The registry adds the metrics of Go and of
// the process.
func checkOpenMetrics(t *testing.T, rows map[string]*row, registry *prometheus.Registry) {
	t.Helper()
	kinds := map[string]string{}
	for name, r := range rows {
		kinds[name] = r.kind
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	owners := map[string]string{}
	for name, kind := range kinds {
		var suffixes []string
		family := name
		switch kind {
		case "counter":
			family = strings.TrimSuffix(name, "_total")
			suffixes = []string{"_total", "_created"}
		case "histogram":
			suffixes = []string{"_bucket", "_count", "_sum", "_created"}
		case "summary":
			suffixes = []string{"_count", "_sum", "_created"}
		}
		for _, suffix := range append(suffixes, "") {
			if other := owners[family+suffix]; other != "" {
				t.Errorf("%s and %s both have %s in OpenMetrics", name, other, family+suffix)
			}
			owners[family+suffix] = name
		}
	}
}

// row is what the page says of one metric.
type row struct {
	kind, help string
	labels     []string
	roles      []string
	setting    string // without which it is not there; "" = none
}

// collect adds what p may export. A series appears when there is something to count, but the
// registry knows all metrics from the start.
func collect(t *testing.T, rows map[string]*row, p *Process, setting string) {
	t.Helper()
	newReloader(p, nil) // it is made beside the process
	collectFrom(t, rows, p.registry, p.role.Name, setting)
}

func collectFrom(t *testing.T, rows map[string]*row, registry *prometheus.Registry, role, setting string) {
	t.Helper()
	for _, c := range registered(registry) {
		for _, d := range descriptions(c) {
			m := description.FindStringSubmatch(d)
			if m == nil {
				t.Fatalf("a description reads %s", d)
			}
			if !strings.HasPrefix(m[1], "overdue_") {
				continue
			}
			r := rows[m[1]]
			if r == nil {
				help, err := strconv.Unquote(`"` + m[2] + `"`)
				if err != nil {
					t.Fatal(err)
				}
				r = &row{kind: kindOf(t, registry, c, m[1]), help: help, setting: setting}
				for _, pair := range constantLabels.FindAllStringSubmatch(m[3], -1) {
					r.labels = append(r.labels, pair[1])
				}
				r.labels = append(r.labels, strings.FieldsFunc(m[4], func(r rune) bool { return r == ',' })...)
				rows[m[1]] = r
			}
			if r.setting == setting && !slices.Contains(r.roles, role) {
				r.roles = append(r.roles, role)
			}
		}
	}
}

var (
	description    = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constantLabels = regexp.MustCompile(`(\w+)="`)
)

// registered are the collectors of a registry, which shows only what they have collected.
func registered(r *prometheus.Registry) []prometheus.Collector {
	field := reflect.ValueOf(r).Elem().FieldByName("collectorsByID")
	all := *(*map[uint64]prometheus.Collector)(unsafe.Pointer(field.UnsafeAddr()))
	return slices.Collect(maps.Values(all))
}

func descriptions(c prometheus.Collector) (all []string) {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.Describe(ch)
	}()
	for d := range ch {
		all = append(all, d.String())
	}
	return all
}

// kindOf returns the type of a metric of a registry.
func kindOf(t *testing.T, registry *prometheus.Registry, c prometheus.Collector, name string) string {
	t.Helper()
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec, *gaugeReader, *labelReader:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	families, err := registry.Gather() // all others have a value from the start
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return strings.ToLower(f.GetType().String())
		}
	}
	t.Fatalf("%s is of no type that the page knows: %T", name, c)
	return ""
}

func (r *row) text(name string) string {
	var labels []string
	for _, l := range slices.Sorted(slices.Values(r.labels)) {
		labels = append(labels, "`"+l+"`")
	}
	unit := ""
	for _, u := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+u) {
			unit = u
		}
	}
	roles := strings.Join(r.roles, ", ")
	if len(r.roles) == len(config.Roles) {
		roles = "all"
	}
	if r.setting != "" {
		roles += "; with `" + r.setting + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", name, r.kind, strings.Join(labels, ", "), unit, roles, r.help)
}

// namedMetrics are the metrics that the code names, each with a file that does.
func namedMetrics(t *testing.T) map[string]string {
	t.Helper()
	named := map[string]string{}
	name := regexp.MustCompile(`"(overdue_[a-z_]*[a-z])"`)
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range name.FindAllSubmatch(text, -1) {
			named[string(m[1])] = file
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}
