// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"overdue/internal/testing/racetest"
)

var options = Options{Image: "registry.example.com/overdue:1.0", Namespace: "contoso.servicebus.windows.net", Identity: IdentityWorkload}

func mustManifest(t interface {
	Helper()
	Fatal(...any)
}, in string, o Options) Result {
	t.Helper()
	r, err := Manifest([]byte(in), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drawManifest draws objects as people write them: with and without what the sidecar needs.
func drawManifest(t *rapid.T) string {
	var docs []string
	for i := range rapid.IntRange(1, 4).Draw(t, "documents") {
		docs = append(docs, drawObject(t, i))
	}
	return strings.Join(docs, "---\n")
}

func drawObject(t *rapid.T, i int) string {
	one := func(label string) bool { return rapid.Bool().Draw(t, label) }
	kind := rapid.SampledFrom([]string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod", "Service"}).Draw(t, "kind")
	var pod strings.Builder
	write := func(format string, a ...any) { fmt.Fprintf(&pod, format, a...) }
	if one("metadata") {
		write("metadata:\n  labels: # of the pods\n    app: shop\n")
		if one("annotations") {
			write("  annotations:\n    team: \"7\"\n")
		}
	}
	write("spec:\n  # what runs\n  containers:\n    - name: app\n      image: shop:1 # pinned\n")
	if one("grace") {
		write("  terminationGracePeriodSeconds: %d\n", rapid.IntRange(5, 90).Draw(t, "seconds"))
	}
	if one("init") {
		write("  initContainers:\n    - name: wait\n      image: wait:1\n")
	}
	if one("volumes") {
		write("  volumes:\n    - name: cache\n      emptyDir: {}\n")
	}
	head := fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata:\n  name: object-%d\n", kind, i)
	if one("namespaced") {
		head += "  namespace: prod\n"
	}
	text := pod.String()
	switch kind {
	case "Service":
		return head + "spec:   {ports: [{port: 80}]} # unusual   blanks\n"
	case "Pod": // whose own metadata is that of its template
		_, spec, _ := strings.Cut(text, "spec:\n")
		return head + "spec:\n" + spec
	case "CronJob":
		return head + "spec:\n  jobTemplate:\n    spec:\n      template:\n" + indented(text, 8)
	}
	return head + "spec:\n  template:\n" + indented(text, 4)
}

func indented(text string, by int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Repeat(" ", by) + line)
	}
	return b.String()
}

// A sidecar that is added can be added again without a change, and taken out without a trace.
func TestRemoveUndoesInject(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	rapid.Check(t, func(t *rapid.T) {
		in := drawManifest(t)
		once := mustManifest(t, in, options)
		if twice := mustManifest(t, string(once.Manifest), options); string(twice.Manifest) != string(once.Manifest) {
			t.Fatalf("a second run differs (-once +twice):\n%s", cmp.Diff(string(once.Manifest), string(twice.Manifest)))
		}
		o := options
		o.Remove = true
		back := mustManifest(t, string(once.Manifest), o)
		if diff := cmp.Diff(meaning(t, in), meaning(t, string(back.Manifest))); diff != "" {
			t.Fatalf("--remove leaves (-before +after):\n%s", diff)
		}
		for _, comment := range []string{"# pinned", "# what runs", "# of the pods", "# unusual   blanks"} {
			if got, want := strings.Count(string(back.Manifest), comment), strings.Count(in, comment); got != want {
				t.Fatalf("comment %q stands there %d times, want %d:\n%s", comment, got, want, back.Manifest)
			}
		}
	})
}

// meaning is what a program reads in a manifest.
func meaning(t *rapid.T, manifest string) (all []any) {
	d := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var v any
		if err := d.Decode(&v); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%v in\n%s", err, manifest)
			}
			return all
		}
		all = append(all, v)
	}
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
  annotations: {%s}
spec:
  template:
    spec:
      %s
      containers:
        - {name: app, image: shop}
`

func TestWorkloadsThatStayAsTheyAre(t *testing.T) {
	for reason, in := range map[string]string{
		`overdue.sidecar/inject is "false"`: fmt.Sprintf(deployment, `overdue.sidecar/inject: "false"`, ""),
		"its pods run on Windows":           fmt.Sprintf(deployment, "", "nodeSelector: {kubernetes.io/os: windows}"),
		"another object owns it":            strings.Replace(fmt.Sprintf(deployment, "", ""), "  name: shop\n", "  name: shop\n  ownerReferences: [{name: x}]\n", 1),
	} {
		r := mustManifest(t, in, options)
		if diff := cmp.Diff([]string{"Deployment shop: " + reason}, r.Skipped); diff != "" || string(r.Manifest) != in {
			t.Errorf("skipped (-want +got):\n%s\n%s", diff, r.Manifest)
		}
	}
}

func TestMistakes(t *testing.T) {
	with := func(change func(*Options)) Options {
		o := options
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		in, want string
		o        Options
	}{
		"no namespace":      {fmt.Sprintf(deployment, "", ""), "the Service Bus namespace is unknown", with(func(o *Options) { o.Namespace = "" })},
		"short namespace":   {fmt.Sprintf(deployment, "overdue.sidecar/namespace: contoso", ""), `namespace "contoso" is not a fully qualified name`, options},
		"secret of no form": {fmt.Sprintf(deployment, `overdue.sidecar/identity: "secret:a"`, ""), `identity "secret:a" is not secret:NAME/KEY`, options},
		"identity unknown":  {fmt.Sprintf(deployment, "overdue.sidecar/identity: mine", ""), `identity "mine" is neither "workload" nor`, options},
		"image of no form":  {fmt.Sprintf(deployment, "overdue.sidecar/image: a b", ""), `image "a b" is not the name of an image`, options},
		"quantity":          {fmt.Sprintf(deployment, "overdue.sidecar/memory: much", ""), `"much" is not a quantity`, options},
		"queue":             {fmt.Sprintf(deployment, "overdue.sidecar/queues: a//b", ""), "a//b", options},
		"grace":             {fmt.Sprintf(deployment, "", "terminationGracePeriodSeconds: 4"), "terminationGracePeriodSeconds is 4; the app and the sidecar after it need 5", options},
		"network of node":   {fmt.Sprintf(deployment, "", "hostNetwork: true"), "its pods use the network of the node", options},
		"container taken":   {fmt.Sprintf(deployment, "", "initContainers: [{name: overdue}]"), `it has a container "overdue" that this command has not added`, options},
		"volume taken":      {fmt.Sprintf(deployment, "", "volumes: [{name: overdue-data}]"), `it has a volume "overdue-data"`, options},
		"port taken":        {strings.Replace(fmt.Sprintf(deployment, "", ""), "image: shop", "ports: [{containerPort: 5672}]", 1), `its container "app" has port 5672, which the sidecar needs`, options},
		"no template":       {"kind: Deployment\nmetadata: {name: x}\n", "Deployment x: spec.template.spec is not there", options},
		"no spec":           {"kind: Pod\nmetadata: {name: x}\n", "Pod x: spec is not there", options},
		"no name":           {"kind: Pod\nspec: {containers: []}\n", "it has no name", options},
		"no YAML":           {"a: [\n", "document 1: line", options},
		"hidden characters": {"kind: Pod # \u202e\n", "which a reader does not see", options},
	} {
		r, err := Manifest([]byte(c.in), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it\n%s", name, err, c.want, r.Manifest)
		}
	}
}

// A List has the ConfigMap behind its workload, and loses it again.
func TestListsAreChangedInPlace(t *testing.T) {
	in := "apiVersion: v1\nkind: List\nitems:\n  - kind: Service\n    metadata: {name: a}\n" +
		"  - kind: Pod\n    metadata:\n      name: b\n    spec:\n      containers: []\n"
	once := string(mustManifest(t, in, options).Manifest)
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
		}
	}
	if err := yaml.Unmarshal([]byte(once), &list); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(list.Items); got != "[{Service {a}} {Pod {b}} {ConfigMap {b-overdue-pod}}]" {
		t.Errorf("items are %s", got)
	}
	o := options
	o.Remove = true
	if back := string(mustManifest(t, once, o).Manifest); back != in {
		t.Errorf("--remove leaves (-want +got):\n%s", cmp.Diff(in, back))
	}
}

// Another configuration replaces the sidecar, and the pods with it.
func TestAnotherRunReplacesTheSidecar(t *testing.T) {
	in := fmt.Sprintf(deployment, `overdue.sidecar/queues: "orders, bills"`, "")
	once := string(mustManifest(t, in, options).Manifest)
	for _, want := range []string{`- queue: "orders"`, `- queue: "bills"`, "name: shop-overdue", "image: registry.example.com/overdue:1.0"} {
		if !strings.Contains(once, want) {
			t.Errorf("%q is not in\n%s", want, once)
		}
	}
	o := options
	o.Identity, o.Image, o.Config = "secret:bus/connection", "registry.example.com/overdue:1.1", []byte("log: {level: debug}\n")
	twice := string(mustManifest(t, once, o).Manifest)
	for _, want := range []string{"key: connection", "overdue:1.1", "log: {level: debug}"} {
		if strings.Count(twice, want) != 1 {
			t.Errorf("%q is not there once in\n%s", want, twice)
		}
	}
	for _, gone := range []string{"contoso", "overdue:1.0", identityLabel} {
		if strings.Contains(twice, gone) {
			t.Errorf("%q is still in\n%s", gone, twice)
		}
	}
	digest := func(manifest string) string {
		_, after, _ := strings.Cut(manifest, "config=")
		return after[:8]
	}
	if digest(once) == digest(twice) {
		t.Errorf("the digest of the configuration is %s both times", digest(once))
	}
}

// A file for all workloads has everything else, and annotations of one say what it sends to.
func TestAnnotationsReplaceTheEntitiesOfAFile(t *testing.T) {
	o := options
	o.Config = []byte("onMonitorDown: pass # not refuse\nmonitor:\n  entities: [{queue: every}]\n  deadline: 5m\n")
	out := string(mustManifest(t, fmt.Sprintf(deployment, `overdue.sidecar/queues: "orders"`, ""), o).Manifest)
	for text, want := range map[string]int{"onMonitorDown: pass # not refuse": 1, "deadline: 5m": 1, `queue: "orders"`: 1, "every": 0} {
		if got := strings.Count(out, text); got != want {
			t.Errorf("%q is there %d times, want %d:\n%s", text, got, want, out)
		}
	}
	o.Config = []byte("# nothing\n")
	if out := string(mustManifest(t, fmt.Sprintf(deployment, `overdue.sidecar/topics: "events"`, ""), o).Manifest); !strings.Contains(out, `- topic: "events"`) {
		t.Errorf("an empty file leaves no room for the annotation:\n%s", out)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(deployment, "", "")))
	f.Add([]byte("a: &a [*a]\nkind: Pod\n"))
	f.Add([]byte("--- {kind: Pod, spec: {}, metadata: {name: x}}\n...\n---\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Manifest(in, options)
		if err != nil {
			return
		}
		again, err := Manifest(r.Manifest, options)
		if err != nil || len(again.Changed) != len(r.Changed) {
			t.Fatalf("of\n%s\na second run says %v, %v", r.Manifest, again.Changed, err)
		}
	})
}
