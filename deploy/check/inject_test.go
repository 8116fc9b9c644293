// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// inject is what `overdue inject` makes of a manifest.
func inject(t *testing.T, manifest []byte, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(program(t), append([]string{"inject"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(manifest), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("overdue inject: %v\n%s", err, &errs)
	}
	return out.Bytes()
}

// Kubernetes takes the manifests that `overdue inject` prints. The sidecar is that of Kustomize.
func TestInjectRendersWhatKubernetesTakes(t *testing.T) {
	in, err := os.ReadFile("testdata/inject/app.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := inject(t, in, "--image", "registry.example.com/overdue:1.0", "--namespace", "fabrikam.servicebus.windows.net")
	ws := workloads(t, objects(t, out))
	var names []string
	for _, w := range ws {
		names = append(names, w.name)
		w.check(t)
		if !w.native || w.pod.InitContainers[0].Name != "overdue" {
			t.Errorf("%s: want a native sidecar before all other init containers", w.name)
		}
		checkFile(t, w.name, w.file(t, "/etc/overdue/overdue.yaml"), "--role", "proxy", "--namespace", "fabrikam.servicebus.windows.net")
	}
	if want := []string{"Deployment shop", "StatefulSet ledger", "DaemonSet agent", "Job once", "CronJob nightly"}; !slices.Equal(names, want) {
		t.Errorf("the sidecar stands in %v, want %v", names, want)
	}
	ours, theirs := ws[0].container, workloads(t, objects(t, kustomize(t, "testdata/kustomize/app")))[0].container
	for what, pair := range map[string][2]any{
		"args": {ours.Args, theirs.Args}, "ports": {ours.Ports, theirs.Ports}, "security": {ours.SecurityContext, theirs.SecurityContext},
		"resources": {ours.Resources, theirs.Resources}, "startup": {ours.StartupProbe, theirs.StartupProbe}, "liveness": {ours.LivenessProbe, theirs.LivenessProbe},
		"mounts": {ours.VolumeMounts, theirs.VolumeMounts}, "settings": {ours.Env[1:], theirs.Env[1:]},
	} {
		if x, y := asJSON(t, pair[0]), asJSON(t, pair[1]); x != y {
			t.Errorf("%s: inject has %s, Kustomize %s", what, x, y)
		}
	}
	if again := inject(t, out, "--image", "registry.example.com/overdue:1.0", "--namespace", "fabrikam.servicebus.windows.net"); !bytes.Equal(again, out) {
		t.Errorf("a second run changes\n%s\ninto\n%s", out, again)
	}
	if back := inject(t, out, "--remove"); !bytes.Equal(back, in) {
		t.Errorf("--remove leaves\n%s\nof\n%s", back, in)
	}
}
