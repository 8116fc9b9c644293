// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// objectsOf are the objects that kubectl reads, those of Lists one by one.
func objectsOf(t *testing.T, manifest string) (all []map[string]any) {
	t.Helper()
	for d := kubeyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), len(manifest)); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("kubectl says %v of\n%s", err, manifest)
		}
		if o["kind"] != "List" {
			all = append(all, o)
			continue
		}
		for _, item := range o["items"].([]any) {
			all = append(all, item.(map[string]any))
		}
	}
}

func value(o map[string]any, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}

// itemNames are the names of the items of a list, as "a b".
func itemNames(o map[string]any, path ...string) string {
	var names []string
	list, _ := value(o, path...).([]any)
	for _, item := range list {
		names = append(names, item.(map[string]any)["name"].(string))
	}
	return strings.Join(names, " ")
}

// checkBothWays checks that a second run changes nothing, and that --remove leaves what kubectl reads
// of the original.
func checkBothWays(t *testing.T, in string) (out string) {
	t.Helper()
	out = string(mustManifest(t, in, options).Manifest)
	if again := string(mustManifest(t, out, options).Manifest); again != out {
		t.Errorf("a second run changes (-once +twice):\n%s", cmp.Diff(out, again))
	}
	o := options
	o.Remove = true
	back := string(mustManifest(t, out, o).Manifest)
	if diff := cmp.Diff(objectsOf(t, in), objectsOf(t, back)); diff != "" {
		t.Errorf("--remove leaves (-before +after):\n%s", diff)
	}
	return out
}

const anchoredLabels = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
spec:
  selector:
    matchLabels: &labels # of the pods
      app: shop
  template:
    metadata:
      labels: *labels
    spec:
      containers:
        - {name: app, image: shop:1}
`

const sharedPod = `apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      template:
        metadata: {labels: {app: web}}
        spec: &pod
          initContainers:
            - {name: migrate, image: shop:1}
          volumes: &volumes
            - {name: cache, emptyDir: {}}
          containers:
            - {name: app, image: shop:1}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: worker}
    spec:
      template:
        metadata: {labels: {app: worker}}
        spec: %s
  - apiVersion: v1
    kind: Pod
    metadata: {name: alone, annotations: {overdue.sidecar/inject: "false"}}
    spec:
      volumes: *volumes
      containers: [{name: app, image: shop:1}]
`

const mergedMetadata = `apiVersion: apps/v1
kind: Deployment
metadata: &meta
  name: shop
  labels: {app: shop}
  annotations: {team: a}
spec:
  template:
    metadata:
      <<: *meta
      name: pods
    spec:
      containers: [{name: app, image: "shop:1"}]
`

// A change to what an anchor names stays in the place that it is for.
func TestAliasesAndMergeKeysKeepWhatTheyName(t *testing.T) {
	shop := objectsOf(t, checkBothWays(t, anchoredLabels))[0]
	if got := value(shop, "spec", "selector", "matchLabels"); !cmp.Equal(got, any(map[string]any{"app": "shop"})) {
		t.Errorf("the selector is %v", got)
	}
	if got := value(shop, "spec", "template", "metadata", "labels", identityLabel); got != "true" {
		t.Errorf("the pods have the label %v", got)
	}

	merged := "{<<: *pod, containers: [{name: app, image: 'shop:1', args: [work]}]}"
	for name, pod := range map[string]string{"an alias": "*pod", "a merge key": merged, "two merge keys": "{<<: [{hostname: a}, *pod]}"} {
		all := objectsOf(t, checkBothWays(t, fmt.Sprintf(sharedPod, pod)))
		var got []string
		for _, o := range all {
			if o["kind"] == "ConfigMap" {
				continue
			}
			path := append(slices.Clone(podTemplates[o["kind"].(string)]), "spec")
			got = append(got, itemNames(o, append(path, "initContainers")...)+" | "+itemNames(o, append(path, "volumes")...))
		}
		with := "overdue migrate | cache overdue-config overdue-data"
		if want := []string{with, with, " | cache"}; !slices.Equal(got, want) {
			t.Errorf("%s: init containers and volumes are %q, want %q", name, got, want)
		}
	}

	shop = objectsOf(t, checkBothWays(t, mergedMetadata))[0]
	if got := value(shop, "spec", "template", "metadata", "labels", "app"); got != "shop" || value(shop, "spec", "template", "metadata", "name") != "pods" {
		t.Errorf("the metadata of the pods is %v", value(shop, "spec", "template", "metadata"))
	}
	if got := value(shop, "metadata", "labels"); !cmp.Equal(got, any(map[string]any{"app": "shop"})) {
		t.Errorf("the Deployment has the labels %v", got)
	}
}

// JSON values may stand one behind the other, without a line between them.
func TestJSONValuesOfAStreamStay(t *testing.T) {
	const service, pod = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}`, `{
  "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\ud83d\ude00" },
  "spec": {"containers": [{"name": "a", "image": "a:1", "args": ["<&\/>", "1.10"]}]}
}`
	named := strings.Replace(pod, `\ud83d\ude00`, "a", 1)
	for _, in := range []string{service + named, named + "\n" + service, named + "\n---\nkind: Service\n", service + "\n\n" + service} {
		var got []string
		for _, o := range objectsOf(t, checkBothWays(t, in)) {
			got = append(got, fmt.Sprint(o["kind"]))
			if o["kind"] == "Pod" && itemNames(o, "spec", "initContainers") != "overdue" {
				t.Errorf("the pod is %v", o)
			}
		}
		want := strings.Count(in, `Service`) + 2*strings.Count(in, `"Pod"`)
		if len(got) != want {
			t.Errorf("of\n%s\nthere are %v, want %d objects", in, got, want)
		}
	}
	if out := string(mustManifest(t, service+service, options).Manifest); out != service+service {
		t.Errorf("a stream without a workload becomes\n%s", out)
	}
	list := `{"kind": "List", "items": [` + named + `]}`
	if out := checkBothWays(t, list); len(objectsOf(t, out)) != 2 {
		t.Errorf("a List in JSON becomes\n%s", out)
	}
	if _, err := Manifest([]byte(pod), options); err == nil || !strings.Contains(err.Error(), "none that Kubernetes takes") {
		t.Errorf("a name that is none: %v", err)
	}
}

func workloadOf(kind, name, queues string) string {
	pod := "{containers: [{name: app, image: a}]}"
	spec := "{template: {spec: " + pod + "}}"
	switch kind {
	case "Pod":
		spec = pod
	case "CronJob":
		spec = "{jobTemplate: {spec: " + spec + "}}"
	}
	return fmt.Sprintf("---\nkind: %s\nmetadata: {%s, annotations: {overdue.sidecar/queues: %q}}\nspec: %s\n", kind, name, queues, spec)
}

// Each workload has the configuration that it asks for, whatever others are called.
func TestEachWorkloadHasItsConfigMap(t *testing.T) {
	var in string
	for kind := range podTemplates {
		in += workloadOf(kind, "name: orders", strings.ToLower(kind))
	}
	in += workloadOf("Deployment", "name: orders-cronjob", "a") + workloadOf("Deployment", "name: orders-overdue-cronjob", "b")
	in += workloadOf("Deployment", "name: orders, namespace: other", "c")
	files := map[string]string{}
	all := objectsOf(t, checkBothWays(t, in))
	for _, o := range all {
		if o["kind"] == "ConfigMap" {
			key := fmt.Sprint(value(o, "metadata", "namespace"), "/", value(o, "metadata", "name"))
			if _, isThere := files[key]; isThere {
				t.Errorf("two ConfigMaps are called %s", key)
			}
			files[key] = value(o, "data", configKey).(string)
		}
	}
	for _, o := range all {
		path, isWorkload := podTemplates[o["kind"].(string)]
		if !isWorkload {
			continue
		}
		volumes := value(o, append(slices.Clone(path), "spec", "volumes")...).([]any)
		key := fmt.Sprint(value(o, "metadata", "namespace"), "/", value(volumes[0].(map[string]any), "configMap", "name"))
		if queue := fmt.Sprintf("queue: %q", value(o, "metadata", "annotations", annotateQueues)); !strings.Contains(files[key], queue) {
			t.Errorf("%s %s mounts %s, which has\n%s", o["kind"], value(o, "metadata", "name"), key, files[key])
		}
	}

	for name, in := range map[string]string{
		"a ConfigMap of somebody else":  "kind: ConfigMap\nmetadata: {name: orders-overdue}\ndata: {}\n" + workloadOf("Deployment", "name: orders", "a"),
		"two Jobs without a name":       workloadOf("Job", "generateName: orders-", "a") + workloadOf("Job", "generateName: orders-", "b"),
		"the same one with two queues":  workloadOf("Job", "name: orders", "a") + workloadOf("Job", "name: orders", "b"),
		"a ConfigMap behind a workload": workloadOf("Job", "name: orders", "a") + "---\nkind: ConfigMap\nmetadata: {name: orders-overdue-job}\n",
	} {
		if r, err := Manifest([]byte(in), options); err == nil || !strings.Contains(err.Error(), "there would be two ConfigMaps") {
			t.Errorf("%s: %v\n%s", name, err, r.Manifest)
		}
	}
}

// A value means what kubectl reads in it, however it is spelt.
func TestValuesMeanWhatKubectlReads(t *testing.T) {
	in := func(spec string) string {
		return "kind: Pod\nmetadata: {name: a}\nspec:\n  " + spec + "\n  containers: [{name: app, image: a}]\n"
	}
	for _, spelt := range []string{"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "!!bool true"} {
		if _, err := Manifest([]byte(in("hostNetwork: "+spelt)), options); err == nil || !strings.Contains(err.Error(), "network of the node") {
			t.Errorf("hostNetwork: %s: %v", spelt, err)
		}
	}
	for _, spelt := range []string{"false", "no", "Off", "null", "~", ""} {
		checkBothWays(t, in("hostNetwork: "+spelt))
	}
	for spec, want := range map[string]string{
		`hostNetwork: "true"`: "cannot unmarshal string",
		"initContainers: [{name: a, ports: [{containerPort: 0x1628}]}]": "has port 5672",
		"initContainers: [{name: a, ports: [{containerPort: 5_672}]}]":  "has port 5672",
		"terminationGracePeriodSeconds: 0x4":                            "terminationGracePeriodSeconds is 4",
	} {
		if _, err := Manifest([]byte(in(spec)), options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for _, no := range []string{"false", "False", "0"} {
		r := mustManifest(t, strings.Replace(in(""), "name: a}", fmt.Sprintf("name: a, annotations: {overdue.sidecar/inject: %q}}", no), 1), options)
		if len(r.Skipped) != 1 {
			t.Errorf("overdue.sidecar/inject: %q: %+v", no, r)
		}
	}
	// The written manifest is read with the values that were meant.
	o := options
	o.Identity = "secret:on/yes"
	from := objectsOf(t, string(mustManifest(t, in(""), o).Manifest))[0]
	env := value(from, "spec", "initContainers").([]any)[0].(map[string]any)["env"].([]any)[0].(map[string]any)
	if got := value(env, "valueFrom", "secretKeyRef"); !cmp.Equal(got, any(map[string]any{"name": "on", "key": "yes"})) {
		t.Errorf("the Secret is %v", got)
	}
}

func TestTemplatesAndPatchesAreRefused(t *testing.T) {
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  template:
    spec:
      containers: [{name: app, image: "web:1"}]
`
	for change, want := range map[string]string{
		"replicas: 1 -> replicas: {{ .Values.replicas }}":                              "this is a template; render it first",
		"replicas: 1 -> replicas: \"{{ .Values.replicas }}\"":                          "this is a template; render it first",
		"  replicas: 1 -> {{- if .Values.replicas }}\n  replicas: 1":                   "this is a template; render it first",
		"name: web -> name: {{ include \"web.fullname\" . }}":                          "this is a template; render it first",
		"web:1 -> {{ .Values.image }}":                                                 "this is a template; render it first",
		"metadata: -> metadata:\n  labels: {{ toYaml .Values.labels | n }}":            "this is a template; render it first",
		"name: web -> name: ${NAME}":                                                   "none that Kubernetes takes",
		"replicas: 1 -> $patch: delete":                                                "this is a patch; render it first",
		"containers: -> $setElementOrder/containers: [{name: app}]\n      containers:": "this is a patch; render it first",
	} {
		from, to, _ := strings.Cut(change, " -> ")
		r, err := Manifest([]byte(strings.Replace(deployment, from, to, 1)), options)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", change, err, want, r.Manifest)
		}
	}
	if _, err := Manifest([]byte("kind: Service\nspec: {ports: {{ .Values.ports }}}\n"), options); !errors.Is(err, errTemplate) {
		t.Errorf("a template that is no workload: %v", err)
	}
	// Braces that an app itself reads.
	own := strings.Replace(deployment, "name: web", "name: web\n  annotations: {vault: '{{ with secret }}'}", 1)
	own = strings.Replace(own, "name: app,", "name: app, args: ['{{ .Name }}'], env: [{name: A, value: '{{ x }}'}],", 1)
	checkBothWays(t, own+"---\nkind: ConfigMap\ndata: {rule: '{{ $labels.job }}'}\n")
}

func TestASecondRunChangesNothing(t *testing.T) {
	const pod = "kind: Pod\nmetadata:\n  annotations:\n    # to be filled in\n  name: a\n  labels:\nspec:\n  volumes:\n  initContainers: ~\n  containers:\n  - {name: app}\n"
	for name, in := range map[string]string{
		"keys without a value": pod,
		"empty values":         "kind: Pod\nmetadata: {name: a, labels: {}, annotations: {}}\nspec:\n  volumes: []\n  initContainers: []\n",
		"JSON":                 `{"kind": "Pod", "metadata": {"name": "a", "labels": null}, "spec": {"volumes": null, "containers": []}}`,
		"lines of Windows":     strings.ReplaceAll("# first\n--- # a comment\n"+pod+"---\nkind: Service\n...\n", "\n", "\r\n"),
		"a byte order mark":    byteOrderMark + pod,
		"an end of a document": pod + "...\n---\n# nothing\n",
		"no end of the line":   strings.TrimSuffix(pod, "\n"),
	} {
		out := string(mustManifest(t, in, options).Manifest)
		if again := string(mustManifest(t, out, options).Manifest); again != out {
			t.Errorf("%s: a second run changes (-once +twice):\n%s", name, cmp.Diff(out, again))
		}
		if strings.Count(out, "# to be filled in") != strings.Count(in, "# to be filled in") {
			t.Errorf("%s: the comment is lost:\n%s", name, out)
		}
		if strings.Count(in, "\r\n") > 0 && strings.Count(out, "\r\n") != strings.Count(out, "\n") {
			t.Errorf("%s: the ends of lines are mixed: %q", name, out)
		}
	}
	// A container and a comment that another tool has put beside the sidecar keep their places.
	out := strings.Replace(string(mustManifest(t, pod, options).Manifest), "  - name: overdue-data\n", "  - name: overdue-data\n    # scratch\n", 1)
	out = strings.Replace(out, "  initContainers:\n", "  initContainers:\n  - name: first\n", 1)
	if again := string(mustManifest(t, out, options).Manifest); again != out {
		t.Errorf("a second run changes (-once +twice):\n%s", cmp.Diff(out, again))
	}
}

// A manifest that kubectl would not read, or reads in two ways, is not changed by guessing.
func TestDocumentsThatReadInTwoWaysAreRefused(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"
	for in, want := range map[string]string{
		pod + "...\n" + pod: "did not find expected <document start>",
		"kind: Pod\nmetadata: {name: a}\nspec: {containers: []}\nspec: {containers: [], volumes: []}\n": "already set in map",
		"a: &a [x, *a]\n": "anchor 'a' value contains itself",
		"kind: Pod\nmetadata: {name: a}\nspec: {containers: [], initContainers: {a: b}}\n": "cannot unmarshal object",
	} {
		if r, err := Manifest([]byte(in), options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q\n%s", in, err, want, r.Manifest)
		}
	}
	// Kinds of others that are called like those of Kubernetes.
	volcano := "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {tasks: []}\n"
	if r := mustManifest(t, volcano, options); string(r.Manifest) != volcano {
		t.Errorf("a Job of another API becomes\n%s", r.Manifest)
	}
}

// The ConfigMap of a hook is there before the hook.
func TestTheConfigMapOfAHookIsAHook(t *testing.T) {
	in := strings.Replace(workloadOf("Job", "name: migrate", "orders"), "annotations: {", `annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "-5", team: a, `, 1)
	all := objectsOf(t, checkBothWays(t, in))
	want := map[string]any{"helm.sh/hook": "pre-install", "helm.sh/hook-weight": "-5"}
	if diff := cmp.Diff(any(want), value(all[1], "metadata", "annotations")); diff != "" {
		t.Errorf("annotations of the ConfigMap (-want +got):\n%s", diff)
	}
}
