// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../helm/overdue"

// helm renders a chart as `helm template overdue` does, for a cluster of that version. values are
// YAML.
func helm(t *testing.T, c *chart.Chart, version, values string) ([]byte, error) {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ProcessDependencies(c, v); err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	kube, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	capabilities.KubeVersion = *kube
	release := chartutil.ReleaseOptions{Name: "overdue", Namespace: "default", Revision: 1, IsInstall: true}
	with, err := chartutil.ToRenderValues(c, v, release, capabilities) // which validates by the schema
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, with)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			out.WriteString("---\n" + files[name] + "\n")
		}
	}
	return out.Bytes(), nil
}

// overdueChart loads a fresh chart: rendering changes a chart.
func overdueChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// appChart is a chart that has ours as a dependency.
func appChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir("testdata/app")
	if err != nil {
		t.Fatal(err)
	}
	c.AddDependency(overdueChart(t))
	return c
}

func mustHelm(t *testing.T, c *chart.Chart, version, values string) []byte {
	t.Helper()
	out, err := helm(t, c, version, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func kustomize(t *testing.T, folder string) []byte {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone // of the overlay in testdata, which leads out of its folder
	m, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An object is one of Kubernetes, decoded strictly.
type object struct {
	apiVersion, kind, name string
	typed                  any
}

// objects decodes all of a manifest, and fails the test on a kind that it does not know and a field
// that a kind does not have.
func objects(t *testing.T, manifest []byte) (all []object) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(newReader(manifest))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if head.Kind == "" {
			if len(strings.TrimSpace(stripComments(string(doc)))) > 0 {
				t.Errorf("this is no object:\n%s", doc)
			}
			continue
		}
		make, ok := kinds[head.APIVersion+" "+head.Kind]
		if !ok {
			t.Errorf("%s %s: a kind that this test does not know; give it a row in kinds", head.APIVersion, head.Kind)
			continue
		}
		typed := make()
		if err := yaml.UnmarshalStrict(doc, typed); err != nil {
			t.Errorf("%s %s: %v\n%s", head.Kind, head.Metadata.Name, err, doc)
		}
		all = append(all, object{head.APIVersion, head.Kind, head.Metadata.Name, typed})
	}
}

func stripComments(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") && trimmed != "---" {
			kept = append(kept, trimmed)
		}
	}
	return strings.Join(kept, "")
}
