// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are generated instead of comparing with them")

// panel is one panel of a dashboard, as Grafana's own format is too long to write by hand.
type panel struct {
	title, about string
	unit         string
	stat         bool
	queries      []query
}

type query struct{ expr, legend string }

// dashboard is one of the files in deploy/grafana.
type dashboard struct {
	file, uid, title, about string
	variables               []any
	panels                  []panel
}

// Selectors of all queries. A topic and its subscriptions belong together: sends have the topic as
// their entity, deadlines the subscription.
const (
	here   = `instance=~"$instance"`
	entity = here + `,` + level
	level  = `entity=~"$entity(/Subscriptions/.+)?"` // of what the rules record, for all processes together
)

// quantile is a quantile of a histogram over the interval of the graph.
func quantile(q, metric, selector string) string {
	return `histogram_quantile(` + q + `, sum by (le) (rate(` + metric + `_bucket{` + selector + `}[$__rate_interval])))`
}

func rate(by, metric, selector string) string {
	return `sum by (` + by + `) (rate(` + metric + `{` + selector + `}[$__rate_interval]))`
}

var dashboards = []dashboard{
	{
		file: "overdue.json", uid: "overdue", title: "Overdue",
		about:     "All processes of Overdue. Canaries are in the panel Canaries alone.",
		variables: []any{datasource, variable("instance", "label_values(overdue_build_info, instance)", "", true)},
		panels: []panel{
			{title: "Missed in the last hour", stat: true, unit: "none", queries: []query{{`round(sum(increase(overdue_deadlines_total{` + here + `,verdict="missed"}[1h])))`, "missed"}}},
			{title: "Lag, p99 of the last hour", about: "From the deadline to the dead-letter queue, by the broker's clock.", stat: true, unit: "s", queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(overdue_deadline_lag_seconds_bucket{` + here + `}[1h])))`, "p99"}}},
			{title: "Due and not received", about: "Companions that are due and that no monitor receives. More than 0: no monitor runs, or it is stuck.", stat: true, unit: "none", queries: []query{{`max(overdue_unreceived_companions{` + here + `})`, "companions"}}},
			{title: "Processes", stat: true, unit: "none", queries: []query{{`count by (role) (overdue_build_info{` + here + `})`, "{{role}}"}}},
			{title: "Deadlines by outcome", unit: "cps", queries: []query{{rate("verdict", "overdue_deadlines_total", here+`,verdict!="canary"`), "{{verdict}}"}}},
			{title: "Lag", about: "The promise is a p99 of one second.", unit: "s", queries: []query{{quantile("0.5", "overdue_deadline_lag_seconds", here), "p50"}, {quantile("0.99", "overdue_deadline_lag_seconds", here), "p99"}}},
			{title: "Missed by entity", about: "The ten with the most.", unit: "cps", queries: []query{{`topk(10, ` + rate("entity", "overdue_deadlines_total", here+`,verdict="missed"`) + `)`, "{{entity}}"}}},
			{title: "Deadlines met in 30 days", about: "The ten entities with the lowest share, as the rules record it.", unit: "percentunit", queries: []query{{`bottomk(10, overdue:deadlines_met:ratio30d{})`, "{{entity}}"}}},
			{title: "Used share of the deadline, p99", about: "The ten entities that come nearest to their deadlines: 1 is missed. Settlements that pass the AMQP endpoint.", unit: "percentunit", queries: []query{{`topk(10, histogram_quantile(0.99, sum by (entity, le) (rate(overdue_deadline_used_ratio_bucket{` + here + `}[$__rate_interval]))))`, "{{entity}}"}}},
			{title: "Outstanding by entity", about: "Deadlines that are due, and not yet settled, expired or notified.", unit: "none", queries: []query{{`topk(10, sum by (entity) (overdue_outstanding_deadlines{` + here + `}))`, "{{entity}}"}}},
			{title: "Sends", unit: "cps", queries: []query{{rate("endpoint, result", "overdue_sends_total", here), "{{endpoint}} {{result}}"}}},
			{title: "How long apps wait for a monitored send", about: "upstream is the part that the namespace takes.", unit: "s", queries: []query{
				{quantile("0.5", "overdue_send_duration_seconds", here+`,monitored="true"`), "p50"},
				{quantile("0.99", "overdue_send_duration_seconds", here+`,monitored="true"`), "p99"},
				{quantile("0.99", "overdue_send_upstream_seconds", here+`,monitored="true"`), "p99 upstream"},
			}},
			{title: "Sends in flight", about: "queued wait for one of proxy.maxInFlight places.", unit: "none", queries: []query{{`sum(overdue_sends_in_flight{` + here + `})`, "in flight"}, {`sum(overdue_sends_queued{` + here + `})`, "queued"}}},
			{title: "Companions", unit: "cps", queries: []query{{rate("result", "overdue_companions_total", here), "{{result}}"}}},
			{title: "Companions in one transfer", unit: "none", queries: []query{{`sum(rate(overdue_companion_batch_size_sum{` + here + `}[$__rate_interval])) / sum(rate(overdue_companion_batch_size_count{` + here + `}[$__rate_interval]))`, "mean"}}},
			{title: "Broker operations of Overdue", about: "About what a namespace bills, beyond those of the apps.", unit: "cps", queries: []query{{rate("operation", "overdue_broker_operations_total", here), "{{operation}}"}}},
			{title: "Alerts", unit: "cps", queries: []query{{rate("sink, result", "overdue_alerts_total", here), "{{sink}} {{result}}"}}},
			{title: "Redis", about: "1 while a use of Redis works.", unit: "none", queries: []query{{`min by (use) (overdue_redis_up{` + here + `})`, "{{use}}"}}},
			{title: "Journal", about: "Companions that wait on disk because the monitor queue cannot be written.", unit: "none", queries: []query{{`overdue_journal_companions{` + here + `}`, "{{instance}}"}}},
			{title: "Canaries", unit: "none", queries: []query{{`sum by (result) (round(increase(overdue_canaries_total{` + here + `}[10m])))`, "{{result}} in 10 minutes"}}},
			{title: "The broker's clock minus that of the process", unit: "s", queries: []query{{`overdue_broker_clock_offset_seconds{` + here + `}`, "{{instance}}"}}},
			{title: "Memory", unit: "bytes", queries: []query{{`process_resident_memory_bytes{` + here + `}`, "{{instance}}"}}},
		},
	},
	{
		file: "overdue-entity.json", uid: "overdue-entity", title: "Overdue: one entity",
		about: "One queue, or one topic with its subscriptions. Canaries are not counted.",
		variables: []any{
			datasource, variable("instance", "label_values(overdue_build_info, instance)", "", true),
			variable("entity", `label_values({__name__=~"overdue_sends_total|overdue_deadlines_total",verdict!="canary"}, entity)`, `/^(.*?)(?:\/Subscriptions\/.*)?$/`, false),
		},
		panels: []panel{
			{title: "Missed in the last hour", stat: true, unit: "none", queries: []query{{`round(sum(increase(overdue_deadlines_total{` + entity + `,verdict="missed"}[1h])))`, "missed"}}},
			{title: "Met in the last hour", about: "Messages with companions of their own; those that share one are not counted.", stat: true, unit: "none", queries: []query{{`round(sum(increase(overdue_deadlines_total{` + entity + `,verdict="met"}[1h])))`, "met"}}},
			{title: "Lag, p99 of the last hour", stat: true, unit: "s", queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(overdue_deadline_lag_seconds_bucket{` + entity + `}[1h])))`, "p99"}}},
			{title: "Outstanding", stat: true, unit: "none", queries: []query{{`sum(overdue_outstanding_deadlines{` + entity + `})`, "outstanding"}}},
			{title: "Deadlines by outcome", unit: "cps", queries: []query{{rate("entity, verdict", "overdue_deadlines_total", entity+`,verdict!="canary"`), "{{entity}} {{verdict}}"}}},
			{title: "Lag", about: "From the deadline to the dead-letter queue, by the broker's clock.", unit: "s", queries: []query{{quantile("0.5", "overdue_deadline_lag_seconds", entity), "p50"}, {quantile("0.99", "overdue_deadline_lag_seconds", entity), "p99"}}},
			{title: "Time left when messages were settled", about: "p1: one in a hundred had less left. Settlements that pass the AMQP endpoint.", unit: "s", queries: []query{{quantile("0.01", "overdue_deadline_slack_seconds", entity), "p1"}, {quantile("0.1", "overdue_deadline_slack_seconds", entity), "p10"}, {quantile("0.5", "overdue_deadline_slack_seconds", entity), "p50"}}},
			{title: "Settled after", about: "From enqueue to settlement: a deadline above p99 would be met by 99 of 100.", unit: "s", queries: []query{{quantile("0.5", "overdue_settled_after_seconds", entity), "p50"}, {quantile("0.99", "overdue_settled_after_seconds", entity), "p99"}}},
			{title: "Used share of the deadline", about: "1 is late. Settlements that pass the AMQP endpoint.", unit: "percentunit", queries: []query{{quantile("0.5", "overdue_deadline_used_ratio", entity), "p50"}, {quantile("0.99", "overdue_deadline_used_ratio", entity), "p99"}}},
			{title: "Budget of the service level", about: "How many times as many deadlines are missed as the objective allows. At 1 the budget lasts for its 30 days.", unit: "none", queries: []query{{`overdue:deadlines_burn:rate1h{` + level + `}`, "1 h {{entity}}"}, {`overdue:deadlines_burn:rate6h{` + level + `}`, "6 h {{entity}}"}}},
			{title: "Deadlines met in 30 days", about: "As the rules record it, beside the objective.", unit: "percentunit", queries: []query{{`overdue:deadlines_met:ratio30d{` + level + `}`, "{{entity}}"}, {`overdue:deadlines_met:objective{` + level + `}`, "objective {{entity}}"}}},
			{title: "Sends", unit: "cps", queries: []query{{rate("endpoint, result", "overdue_sends_total", entity), "{{endpoint}} {{result}}"}}},
			{title: "Outstanding deadlines", unit: "none", queries: []query{{`sum by (entity) (overdue_outstanding_deadlines{` + entity + `})`, "{{entity}}"}}},
			{title: "Reminders", about: "Messages that were not settled at warnBefore ahead of their deadline.", unit: "none", queries: []query{{`sum by (entity) (round(increase(overdue_warnings_total{` + entity + `}[10m])))`, "{{entity}} in 10 minutes"}}},
			{title: "Adopted messages", about: "Messages that passed no endpoint and were given a companion.", unit: "none", queries: []query{{`sum by (entity) (round(increase(overdue_adopted_total{` + entity + `}[10m])))`, "{{entity}} in 10 minutes"}}},
		},
	},
}

type object = map[string]any

var (
	datasource = object{"name": "datasource", "type": "datasource", "query": "prometheus", "current": object{}}
	source     = object{"type": "prometheus", "uid": "${datasource}"}
)

func variable(name, values, regex string, several bool) object {
	v := object{
		"name": name, "type": "query", "datasource": source, "definition": values, "regex": regex, "refresh": 2, "sort": 1,
		"query": object{"query": values, "refId": name}, "current": object{}, "multi": several, "includeAll": several,
	}
	if several {
		v["allValue"], v["current"] = ".*", object{"text": []string{"All"}, "value": []string{"$__all"}}
	}
	return v
}

// json returns the dashboard as Grafana imports it.
func (d *dashboard) json(t *testing.T) []byte {
	t.Helper()
	var panels []any
	x, y, row := 0, 0, 0
	for i, p := range d.panels {
		kind, width, height := "timeseries", 12, 8
		options := object{"legend": object{"showLegend": true, "displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi"}}
		if p.stat {
			kind, width, height = "stat", 6, 4
			options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
		}
		if x+width > 24 {
			x, y = 0, y+row
		}
		var targets []any
		for j, q := range p.queries {
			targets = append(targets, object{"refId": string(rune('A' + j)), "expr": q.expr, "legendFormat": q.legend, "datasource": source})
		}
		panels = append(panels, object{
			"id": i + 1, "type": kind, "title": p.title, "description": p.about, "datasource": source, "targets": targets, "options": options,
			"gridPos":     object{"x": x, "y": y, "w": width, "h": height},
			"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}},
		})
		if strings.Contains(p.title, "clock") {
			panels[i].(object)["fieldConfig"] = object{"defaults": object{"unit": p.unit}, "overrides": []any{}}
		}
		x, row = x+width, height
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(object{
		"title": d.title, "uid": d.uid, "description": d.about, "tags": []string{"overdue", "service bus"}, "schemaVersion": 39, "version": 1, "editable": true,
		"time": object{"from": "now-3h", "to": "now"}, "refresh": "30s", "templating": object{"list": d.variables}, "panels": panels,
		"links": []any{object{"type": "dashboards", "tags": []string{"overdue"}, "title": "Overdue", "includeVars": true, "keepTime": true}},
	}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDashboardsAreFresh(t *testing.T) {
	for _, d := range dashboards {
		file := "grafana/" + d.file
		want := d.json(t)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("deploy/%s is stale; run `make docs`", file)
		}
	}
}

// exported reads the labels of each metric from the reference page, which is made from the
// registries of processes. With them it returns what the rules record.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(overdue_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		labels := []string{"instance", "job"} // of Prometheus
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		if m[2] == "histogram" {
			all[m[1]+"_count"], all[m[1]+"_sum"] = labels, labels
			all[m[1]+"_bucket"] = append(slices.Clone(labels), "le")
			continue
		}
		all[m[1]] = labels
	}
	if len(all) < 40 {
		t.Fatalf("%d series were read from the page", len(all))
	}
	rules, err := os.ReadFile("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- record: (\S+)`).FindAllStringSubmatch(string(rules), -1) {
		all[m[1]] = []string{"entity"}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:overdue|process|go)[_:][\w:]+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"[^"]*"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// Every metric of a panel is exported, with every label that its query and its legend use. No panel
// counts canaries.
func TestPanelsUseWhatIsExported(t *testing.T) {
	known := exported(t)
	for _, d := range dashboards {
		for _, p := range d.panels {
			for _, q := range p.queries {
				metrics := selector.FindAllStringSubmatch(q.expr, -1)
				if len(metrics) == 0 {
					t.Errorf("%s: %s: the query %s has no metric with a selector", d.file, p.title, q.expr)
				}
				for _, m := range metrics {
					labels, ok := known[m[1]]
					if strings.HasPrefix(m[1], "process_") {
						labels, ok = []string{"instance", "job"}, true
					}
					if !ok {
						t.Errorf("%s: %s: %s is not exported", d.file, p.title, m[1])
						continue
					}
					var used []string
					for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
						used = append(used, l[1])
					}
					for _, g := range grouping.FindAllStringSubmatch(q.expr, -1) {
						used = append(used, strings.Split(g[1], ", ")...)
					}
					for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.legend, -1) {
						used = append(used, l[1])
					}
					for _, l := range used {
						if !slices.Contains(labels, l) {
							t.Errorf("%s: %s: %s has no label %s, only %v", d.file, p.title, m[1], l, labels)
						}
					}
					if m[1] == "overdue_deadlines_total" && !strings.Contains(m[2], `verdict="m`) && !strings.Contains(m[2], `verdict!="canary"`) {
						t.Errorf("%s: %s counts canaries: %s", d.file, p.title, q.expr)
					}
				}
			}
		}
	}
}
