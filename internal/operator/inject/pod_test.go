// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"overdue/internal/testing/racetest"
)

// patched is a pod with operations, as an API server makes it.
func patched(t interface{ Fatal(...any) }, pod any, changes []Operation) (after any) {
	operations, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Apply(before)
	if err == nil {
		err = json.Unmarshal(text, &after)
	}
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// plainJSON has only what encoding/json makes.
func plainJSON(t interface{ Fatal(...any) }, v any) (plain any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// A pod at admission gets what a manifest gets, but for the place of its configuration.
func TestPodGetsTheSidecarOfAManifest(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	rapid.Check(t, func(t *rapid.T) {
		in := drawPod(t)
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		changes, skipped, err := Pod(text, options)
		if err != nil || skipped != "" {
			t.Fatalf("Pod = %q, %v\n%s", skipped, err, text)
		}
		got := patched(t, in, changes)
		var want any
		manifest, _, _ := strings.Cut(strings.TrimPrefix(string(mustManifest(t, string(text), options).Manifest), "---\n"), "\n---\n")
		if err := yaml.Unmarshal([]byte(manifest), &want); err != nil {
			t.Fatal(err)
		}
		want = plainJSON(t, want)
		// The places in which the two differ.
		file := annotationsOf(got)[annotateConfig]
		delete(annotationsOf(got), annotateConfig)
		if file != configOf(nil, nil) {
			t.Fatalf("the annotation has the configuration\n%s", file)
		}
		for _, pod := range []any{got, want} {
			for _, v := range pod.(map[string]any)["spec"].(map[string]any)["volumes"].([]any) {
				delete(v.(map[string]any), "configMap")
				delete(v.(map[string]any), "downwardAPI")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-manifest +patched:\n%s", diff)
		}
		twice, err := json.Marshal(patched(t, in, changes))
		if err != nil {
			t.Fatal(err)
		}
		if _, skipped, err = Pod(twice, options); skipped != "it has a sidecar already" {
			t.Fatalf("a second time: %q, %v", skipped, err)
		}
		o := options
		o.Remove = true
		var back any
		if err := yaml.Unmarshal(mustManifest(t, string(twice), o).Manifest, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plainJSON(t, in), plainJSON(t, back)); diff != "" {
			t.Fatalf("--remove leaves (-before +after):\n%s", diff)
		}
	})
}

func annotationsOf(pod any) map[string]any {
	return pod.(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any)
}

// drawPod draws a pod as an API server sends it.
func drawPod(t *rapid.T) map[string]any {
	one := func(label string) bool { return rapid.Bool().Draw(t, label) }
	name := rapid.SampledFrom([]string{"cache", "a/b~c", "täglich"})
	meta := map[string]any{"name": "shop"}
	if one("annotations") {
		meta["annotations"] = map[string]any{name.Draw(t, "annotation"): "true"}
	}
	if one("labels") {
		meta["labels"] = map[string]any{name.Draw(t, "label"): "7"}
	}
	container := map[string]any{"name": "app", "image": "shop", "env": []any{map[string]any{"name": "TEXT", "value": "a\tb\n<&\u2028 # no: comment"}}}
	spec := map[string]any{"containers": []any{container}, "terminationGracePeriodSeconds": rapid.IntRange(5, 60).Draw(t, "grace")}
	for _, key := range []string{"initContainers", "volumes"} {
		if one(key) {
			var list []any
			for i := range rapid.IntRange(1, 3).Draw(t, "items") {
				list = append(list, map[string]any{"name": fmt.Sprint("item-", i%2), "ratio": 0.5, "many": 1e21, "on": true})
			}
			spec[key] = list
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
}

func TestPodsThatStayAsTheyAre(t *testing.T) {
	const pod = `{"kind": "Pod", "metadata": {"generateName": "shop-7d9f-", "annotations": {%s}, "ownerReferences": [{"kind": "ReplicaSet"}]}, "spec": {%s}}`
	for reason, in := range map[string]string{
		`overdue.sidecar/inject is "false"`:     fmt.Sprintf(pod, `"overdue.sidecar/inject": "false"`, `"containers": []`),
		"a kubelet runs it from a file":         fmt.Sprintf(pod, `"kubernetes.io/config.mirror": "x"`, `"containers": []`),
		"it has a sidecar already":              fmt.Sprintf(pod, `"overdue.sidecar/injected": "x"`, `"containers": []`),
		`it has a container "overdue" already`:  fmt.Sprintf(pod, ``, `"containers": [{"name": "overdue"}]`),
		"its pods run on Windows":               fmt.Sprintf(pod, ``, `"containers": [], "os": {"name": "windows"}`),
		"Pod : spec is not there":               `{"kind": "Pod"}`,
		"the pod cannot be read":                `{"kind": "Pod"`,
		"has the annotation overdue.sidecar/co": fmt.Sprintf(pod, `"overdue.sidecar/config": "x"`, `"containers": []`),
		"its pods use the network of the node":  fmt.Sprintf(pod, ``, `"containers": [], "hostNetwork": true`),
		"cannot unmarshal object":               fmt.Sprintf(pod, ``, `"containers": [], "volumes": {"a": 1}`),
		"the Service Bus namespace is unknown":  fmt.Sprintf(pod, `"overdue.sidecar/identity": "workload"`, `"containers": []`),
	} {
		o := options
		if strings.HasPrefix(reason, "the Service Bus") {
			o.Namespace = ""
		}
		changes, skipped, err := Pod([]byte(in), o)
		said := skipped
		if err != nil {
			said = err.Error()
		}
		if len(changes) > 0 || !strings.Contains(said, reason) {
			t.Errorf("Pod(%s) = %v, %q, %v; want no changes and %q", in, changes, skipped, err, reason)
		}
	}
	// The pod of a ReplicaSet, which has no name yet.
	if changes, skipped, err := Pod([]byte(fmt.Sprintf(pod, ``, `"containers": []`)), options); len(changes) == 0 || skipped != "" || err != nil {
		t.Errorf("the pod of a ReplicaSet: %v, %q, %v; want the sidecar", changes, skipped, err)
	}
}

func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"kind": "Pod", "metadata": {"annotations": null}, "spec": {"containers": [{"name": "a", "env": [{"value": "\u0085\ufeff"}]}], "volumes": []}}`))
	f.Add([]byte(`{"kind": "Pod", "spec": {"initContainers": [1, "a", null], "containers": [[]]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		changes, _, err := Pod(in, options)
		if err != nil || len(changes) == 0 {
			return
		}
		var pod any
		if err := json.Unmarshal(in, &pod); err != nil {
			t.Fatal(err)
		}
		after, err := json.Marshal(patched(t, pod, changes))
		if err != nil {
			t.Fatal(err)
		}
		if again, skipped, err := Pod(after, options); skipped == "" || err != nil {
			t.Fatalf("of\n%s\na second time: %v, %q, %v", after, again, skipped, err)
		}
	})
}
