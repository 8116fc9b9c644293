// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	core "k8s.io/api/core/v1"
)

// everything turns on what is off by default.
const everything = `
namespaceSecret: {name: servicebus}
image: {repository: registry.example.com/overdue, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: pull}]
config: {monitor: {entities: [{queue: orders, deadline: 30s}]}, alerts: [{webhook: {url: "http://127.0.0.1:1/hook"}}]}
workloadIdentity: {enabled: true, clientId: 01234567-89ab-cdef-0123-456789abcdef}
serviceAccount: {annotations: {a: b}}
monitor:
  replicas: 3
  minAvailable: 50%
  priorityClassName: high
  nodeSelector: {a: b}
  tolerations: [{key: a, operator: Exists}]
  affinity: {nodeAffinity: {}}
  podAnnotations: {a: b}
  podLabels: {a: b}
  extraEnv: [{name: OVERDUE_COMPANIONS, value: each}]
  extraEnvFrom: [{secretRef: {name: sinks}}]
  extraVolumes: [{name: sinks, secret: {secretName: sinks}}]
  extraVolumeMounts: [{name: sinks, mountPath: /run/secrets/sinks, readOnly: true}]
  extraArgs: [--log-level, debug]
networkPolicy:
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{ports: [{port: 587, protocol: TCP}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
podMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
alertmanagerConfig: {enabled: true, labels: {release: prometheus}, receivers: {overdue-pager: {pagerdutyConfigs: [{routingKey: {name: pagerduty, key: key}}]}}}
`

const least = "namespace: contoso.servicebus.windows.net\nimage: {repository: registry.example.com/overdue}\n"

func TestTheChartHasNothingToComplainOf(t *testing.T) {
	linter := lint.All(chartFolder, leastValues(), "default", true)
	for _, m := range linter.Messages {
		// That there is no icon is reported as information.
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

func leastValues() map[string]any {
	return map[string]any{"namespace": "contoso.servicebus.windows.net", "image": map[string]any{"repository": "registry.example.com/overdue"}}
}

// `helm lint` refuses a setting that the program would refuse.
func TestLintRefusesASettingThatThereIsNot(t *testing.T) {
	for want, config := range map[string]any{
		"slak":      map[string]any{"slak": map[string]any{}},
		"deadline":  map[string]any{"monitor": map[string]any{"deadline": "soon"}},
		"companion": map[string]any{"companions": "some"},
		"webhok":    map[string]any{"alerts": []any{map[string]any{"webhok": map[string]any{}}}},
	} {
		values := leastValues()
		values["config"] = config
		linter := lint.All(chartFolder, values, "default", true)
		if !slices.ContainsFunc(linter.Messages, func(m support.Message) bool {
			return m.Severity == support.ErrorSev && strings.Contains(m.Err.Error(), want)
		}) {
			t.Errorf("config %v: helm lint says %v, want an error that names %s", config, linter.Messages, want)
		}
	}
}

func TestTheChartRendersWhatKubernetesTakes(t *testing.T) {
	for _, version := range []string{"v1.25.0", "v1.29.0", "v1.34.1"} {
		for name, values := range map[string]string{"least": least, "everything": everything} {
			all := objects(t, mustHelm(t, overdueChart(t), version, values))
			count := map[string]int{}
			for _, o := range all {
				count[o.kind]++
			}
			for _, kind := range []string{"Deployment", "ConfigMap", "PodDisruptionBudget", "ServiceAccount", "NetworkPolicy"} {
				if count[kind] != 1 {
					t.Errorf("%s, %s: %d %ss, want one", version, name, count[kind], kind)
				}
			}
			for _, kind := range []string{"Service", "ServiceMonitor", "PodMonitor", "PrometheusRule", "AlertmanagerConfig"} {
				if want := map[string]int{"everything": 1}[name]; count[kind] != want {
					t.Errorf("%s, %s: %d %ss, want %d", version, name, count[kind], kind, want)
				}
			}
			for _, w := range workloads(t, all) {
				w.check(t)
				checkFile(t, name, w.file(t, "/etc/overdue/overdue.yaml"), "--role", "monitor", "--namespace", "contoso.servicebus.windows.net")
			}
		}
	}
}

// The identity is asked for in both places, or the pod has no token and nobody says why.
func TestWorkloadIdentityIsWired(t *testing.T) {
	all := objects(t, mustHelm(t, overdueChart(t), "v1.34.0", everything))
	var account *core.ServiceAccount
	for _, o := range all {
		if a, ok := o.typed.(*core.ServiceAccount); ok {
			account = a
		}
	}
	w := workloads(t, all)[0]
	if account.Annotations["azure.workload.identity/client-id"] == "" || w.labels["azure.workload.identity/use"] != "true" || w.pod.ServiceAccountName != account.Name {
		t.Errorf("account %q %v, pod of account %q %v; want the pod to use an account with a client id", account.Name, account.Annotations, w.pod.ServiceAccountName, w.labels)
	}
}

// A monitor that Prometheus does not find is not watched.
func TestServiceMonitorAndServiceSelectThePods(t *testing.T) {
	all := objects(t, mustHelm(t, overdueChart(t), "v1.34.0", everything))
	labels := workloads(t, all)[0].labels
	matches := func(what string, selector map[string]string, of map[string]string) {
		t.Helper()
		for k, v := range selector {
			if of[k] != v {
				t.Errorf("%s selects %s=%s, and there is %v", what, k, v, of)
			}
		}
		if len(selector) == 0 {
			t.Errorf("%s selects everything", what)
		}
	}
	for _, o := range all {
		switch v := o.typed.(type) {
		case *core.Service:
			matches("Service", v.Spec.Selector, labels)
			if v.Spec.Ports[0].TargetPort.StrVal != "probes" {
				t.Errorf("the Service leads to port %v, want probes", v.Spec.Ports[0].TargetPort)
			}
		case *serviceMonitor:
			for _, other := range all {
				if s, ok := other.typed.(*core.Service); ok {
					matches("ServiceMonitor", v.Spec.Selector.MatchLabels, s.Labels)
					if v.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name {
						t.Errorf("the ServiceMonitor scrapes port %s, the Service has %s", v.Spec.Endpoints[0].Port, s.Spec.Ports[0].Name)
					}
				}
			}
		}
	}
}

func TestTheSidecarIsNativeWhereTheClusterHasIt(t *testing.T) {
	for version, native := range map[string]bool{"v1.25.0": false, "v1.28.15": false, "v1.29.0": true, "v1.30.3-eks-1": true, "v1.34.0": true} {
		all := objects(t, mustHelm(t, appChart(t), version, ""))
		ws := workloads(t, all)
		if len(ws) != 1 || len(all) != 2 {
			t.Fatalf("%s: %d objects with %d pods, want the app's Deployment and a ConfigMap, without a monitor", version, len(all), len(ws))
		}
		w := ws[0]
		w.check(t)
		if w.native != native {
			t.Errorf("%s: native sidecar %v, want %v", version, w.native, native)
		}
		if w.labels["overdue.sidecar"] != "true" {
			t.Errorf("%s: the pod has labels %v, want overdue.sidecar=true, by which the PodMonitor finds it", version, w.labels)
		}
		if !native && (w.pod.Containers[0].Name != "overdue" || w.container.Lifecycle == nil) {
			t.Errorf("%s: the classic sidecar is not first, or nothing waits for it", version)
		}
	}
	// A value overrides the version of the cluster.
	for values, native := range map[string]bool{"overdue: {sidecar: {native: false}}": false, "overdue: {sidecar: {native: true}}": true} {
		if w := workloads(t, objects(t, mustHelm(t, appChart(t), "v1.28.0", values)))[0]; w.native != native {
			t.Errorf("%s: native sidecar %v", values, w.native)
		}
	}
}

func TestTheSchemaRefusesWhatIsMisspelt(t *testing.T) {
	for values, want := range map[string]string{
		"":                             "give image.repository",
		"image: {repository: overdue}": "give namespace",
		least + "webhook: {failurePolicy: Sometimes}":  "failurePolicy",
		least + "webhook: {namespaceSelector: {a: b}}": "namespaceSelector",
		least + "config: {slak: {}}":                   "slak",
		least + "montior: {}":                          "montior",
		least + "monitor: {replica: 1}":                "replica",
		least + "monitor: {replicas: 0}":               "replicas",
		least + "config: {namespace: x}":               "config",
		least + "config: {listen: {}}":                 "config",
		least + "sidecar: {maxSigtermDelay: 20}":       "maxSigtermDelay",
		least + "image: {digest: abc}":                 "digest",
		least + "workloadIdentity: {enabled: true}":    "clientId",
		"namespace: Endpoint=sb://x;SharedAccessKey=y": "namespace",
	} {
		_, err := helm(t, overdueChart(t), "v1.34.0", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", values, err, want)
		}
	}
}

func TestRulesTakeSeverityLabelsAndRunbookFromTheValues(t *testing.T) {
	const values = least + `
prometheusRule:
  enabled: true
  severity: {OverdueLate: critical, OverdueDeadlineMissed: none}
  alertLabels: {team: payments}
  runbookURL: "https://wiki.example.com/overdue/{alert}?a=b"
`
	found := false
	for _, o := range objects(t, mustHelm(t, overdueChart(t), "v1.34.0", values)) {
		r, ok := o.typed.(*prometheusRule)
		if !ok {
			continue
		}
		alerts, _ := r.Spec.split()
		for _, rule := range alerts {
			if rule.Alert == "OverdueDeadlineMissed" {
				t.Error("OverdueDeadlineMissed is there, although its severity is none")
			}
			team, runbook := "payments", "https://wiki.example.com/overdue/"+strings.ToLower(rule.Alert)+"?a=b"
			if strings.Contains(rule.Expr, "group_left (team") { // that of the queue counts more
				team = "{{ with $labels.team }}{{ . }}{{ else }}payments{{ end }}"
			}
			if _, own := rule.Labels["runbook"]; own {
				runbook = "{{ with $labels.runbook }}{{ . }}{{ else }}" + runbook + "{{ end }}"
			}
			if rule.Labels["team"] != team || rule.Labels["severity"] == "" {
				t.Errorf("%s has the labels %v", rule.Alert, rule.Labels)
			}
			if rule.Annotations["runbook_url"] != runbook {
				t.Errorf("the runbook of %s is %s, want %s", rule.Alert, rule.Annotations["runbook_url"], runbook)
			}
			if rule.Alert == "OverdueLate" {
				found = true
				if rule.Labels["severity"] != "critical" || rule.For != "15m" || !strings.Contains(rule.Annotations["summary"], "{{ $labels.entity }}") {
					t.Errorf("OverdueLate is %+v", rule)
				}
			}
		}
	}
	if !found {
		t.Error("there is no OverdueLate")
	}
	for wrong, said := range map[string]string{
		"severity: {OverdueLte: critical}":      "prometheusRule.severity names OverdueLte, which is no alert",
		"alertLabels: {severity: critical}":     "'severity'",
		"alertLabels: {\"not a label\": wrong}": "'not a label'",
		"runbookUrl: \"https://a.example\"":     "runbookUrl",
	} {
		_, err := helm(t, overdueChart(t), "v1.34.0", least+"prometheusRule: {enabled: true, "+wrong+"}\n")
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v, want an error about %s", wrong, err, said)
		}
	}
}

// The operator writes routes and inhibition rules in another way than Alertmanager.
func TestTheAlertmanagerConfigIsTheFileThatIsTested(t *testing.T) {
	tested := asTested(t, "alertmanager.yml")
	var found *alertmanagerConfig
	for _, o := range objects(t, mustHelm(t, overdueChart(t), "v1.34.0", everything)) {
		switch typed := o.typed.(type) {
		case *alertmanagerConfig:
			found = typed
		case *prometheusRule:
			alerts, _ := typed.Spec.split()
			for _, rule := range alerts {
				if rule.Labels["namespace"] == "" {
					t.Errorf("%s lacks the label namespace, by which the operator routes", rule.Alert)
				}
			}
		}
	}
	if found == nil {
		t.Fatal("there is no AlertmanagerConfig")
	}
	spec := found.Spec
	if n := strings.Count(string(tested), "- source_matchers:"); len(spec.InhibitRules) != n || n == 0 {
		t.Errorf("%d inhibition rules, want %d", len(spec.InhibitRules), n)
	}
	for _, r := range spec.InhibitRules {
		for _, m := range slices.Concat(r.SourceMatch, r.TargetMatch) {
			want := m.Name + m.MatchType + strconv.Quote(m.Value)
			if !strings.Contains(string(tested), want) || m.Name == "" || m.MatchType == "" {
				t.Errorf("a matcher %+v, which is not in the file as %s", m, want)
			}
		}
	}
	critical := alertRoute{
		Receiver:       "overdue-pager",
		GroupWait:      "10s",
		RepeatInterval: "2h",
		Matchers:       []matcher{{Name: "severity", Value: "critical", MatchType: "="}},
	}
	if diff := cmp.Diff(critical, spec.Route.Routes[1]); diff != "" || spec.Route.Receiver != "overdue-tickets" || spec.Route.GroupBy[0] != "alertname" {
		t.Errorf("the route %+v; of critical alerts (-want +got):\n%s", spec.Route, diff)
	}
	if len(spec.Receivers) != 3 || spec.Receivers[0].Name != "overdue-pager" || len(spec.Receivers[0].PagerDutyConfigs) != 1 {
		t.Errorf("receivers %+v, want the three of Overdue, and what the values say of the pager", spec.Receivers)
	}
	_, err := helm(t, overdueChart(t), "v1.34.0", least+"alertmanagerConfig: {enabled: true, receivers: {overdue-page: {}}}\n")
	if want := "alertmanagerConfig.receivers names overdue-page, which is no receiver"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a receiver that there is not: %v, want an error about %s", err, want)
	}
}

// asTested is a file of the chart, which has to be the one that is tested: the chart cannot read
// files beside its folder.
func asTested(t *testing.T, name string) []byte {
	t.Helper()
	ours, err := os.ReadFile(filepath.Join(chartFolder, "files", name))
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile(filepath.Join("../prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, tested) {
		t.Errorf("deploy/helm/overdue/files/%[1]s is not deploy/prometheus/%[1]s; run `make docs`", name)
	}
	return tested
}

func TestTheChartHasTheRulesThatAreTested(t *testing.T) {
	tested := asTested(t, "overdue.rules.yml")
	for _, o := range objects(t, mustHelm(t, overdueChart(t), "v1.34.0", everything)) {
		if r, ok := o.typed.(*prometheusRule); ok {
			alerts, records := r.Spec.split()
			if n := len(alerts); n != len(regexp.MustCompile(`(?m)- alert:`).FindAll(tested, -1)) || n == 0 {
				t.Errorf("the PrometheusRule has %d alerts, want all of the file", n)
			}
			if n := strings.Count(string(tested), "- record:"); len(records) != n || n == 0 || r.Spec.Groups[1].Interval == "" || records[0].Labels != nil {
				t.Errorf("the PrometheusRule has %d recorded series, labelled %v; want all of the file, those of the service level each two minutes", len(records), records[0].Labels)
			}
			templated := 0
			for _, rule := range alerts {
				if strings.Contains(rule.Annotations["summary"], "{{ $labels.instance }}") {
					templated++
				}
			}
			if want := strings.Count(string(tested), "{{ $labels.instance }}"); templated == 0 || templated > want {
				t.Error("Helm has taken the templates of Prometheus for its own")
			}
		}
	}
}
