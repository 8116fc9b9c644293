// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

func TestKustomizeRendersWhatKubernetesTakes(t *testing.T) {
	central := objects(t, kustomize(t, "../kustomize/central"))
	ws := workloads(t, central)
	if len(ws) != 1 {
		t.Fatalf("central has %d pods, want the monitor's", len(ws))
	}
	ws[0].check(t)
	checkFile(t, "kustomize/central", ws[0].file(t, "/etc/overdue/overdue.yaml"), "--role", "monitor", "--namespace", "contoso.servicebus.windows.net")
	if count := len(central); count != 6 {
		t.Errorf("central has %d objects, want a Deployment, an account, a budget, a network policy and two ConfigMaps", count)
	}

	ws = workloads(t, objects(t, kustomize(t, "testdata/kustomize/app")))
	names := map[string]bool{}
	for _, w := range ws {
		w.check(t)
		names[w.name] = true
		if !w.native || w.pod.InitContainers[0].Name != "overdue" || !strings.HasPrefix(w.container.Image, "registry.example.com/overdue:") {
			t.Errorf("%s: want a native sidecar before all other init containers, with the overlay's image; got %s", w.name, w.container.Image)
		}
		if got := w.env(t)["OVERDUE_NAMESPACE"]; got != "fabrikam.servicebus.windows.net" {
			t.Errorf("%s is for namespace %q, want the overlay's", w.name, got)
		}
	}
	if len(names) != 2 || !names["Deployment app"] || !names["Job once"] {
		t.Errorf("the sidecar stands in %v, want what has the label and nothing else", names)
	}
}

// The chart and Kustomize are two ways to the same pod.
func TestHelmAndKustomizeAgree(t *testing.T) {
	values := least + "workloadIdentity: {enabled: true, clientId: 01234567-89ab-cdef-0123-456789abcdef}\n"
	a := workloads(t, objects(t, mustHelm(t, overdueChart(t), "v1.34.0", values)))[0]
	b := workloads(t, objects(t, kustomize(t, "../kustomize/central")))[0]
	for what, pair := range map[string][2]any{
		"args": {a.container.Args, b.container.Args}, "ports": {a.container.Ports, b.container.Ports},
		"security": {a.container.SecurityContext, b.container.SecurityContext}, "resources": {a.container.Resources, b.container.Resources},
		"startup": {a.container.StartupProbe, b.container.StartupProbe}, "liveness": {a.container.LivenessProbe, b.container.LivenessProbe},
		"readiness": {a.container.ReadinessProbe, b.container.ReadinessProbe}, "mounts": {a.container.VolumeMounts, b.container.VolumeMounts},
		"grace": {a.pod.TerminationGracePeriodSeconds, b.pod.TerminationGracePeriodSeconds},
	} {
		if x, y := asJSON(t, pair[0]), asJSON(t, pair[1]); x != y {
			t.Errorf("%s: the chart has %s, Kustomize %s", what, x, y)
		}
	}
}

func TestKEDAScalesTheMonitor(t *testing.T) {
	all := objects(t, []byte(read(t, "../keda/scaledobject.yaml")))
	if len(all) != 1 {
		t.Fatalf("%d objects, want one", len(all))
	}
	s := all[0].typed.(*scaledObject)
	if w := workloads(t, objects(t, kustomize(t, "../kustomize/central")))[0]; w.name != "Deployment "+s.Spec.ScaleTargetRef.Name {
		t.Errorf("it scales %s, the monitor is %s", s.Spec.ScaleTargetRef.Name, w.name)
	}
	if s.Spec.MinReplicaCount < 1 || s.Spec.MaxReplicaCount < s.Spec.MinReplicaCount {
		t.Errorf("%d to %d replicas; none at all notices no deadline", s.Spec.MinReplicaCount, s.Spec.MaxReplicaCount)
	}
}

func compose(t *testing.T, folder string) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir: dir, Environment: types.Mapping{"ACCEPT_EULA": "Y"},
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}},
	}, loader.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFilesLoad(t *testing.T) {
	for _, folder := range []string{"../compose/embedded", "../compose/emulator"} {
		project := compose(t, folder)
		s := project.Services["overdue"]
		env := map[string]string{}
		for k, v := range s.Environment {
			env[k] = *v
		}
		checkCommand(t, folder, s.Command, env)
		if !s.ReadOnly || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" {
			t.Errorf("%s: overdue may do more than run", folder)
		}
		flags := strings.Join(s.Command, " ")
		if m := regexp.MustCompile(`--max-sigterm-delay (\S+)`).FindStringSubmatch(flags); m != nil {
			env["OVERDUE_MAX_SIGTERM_DELAY"] = m[1]
		}
		if most := setting(t, env, "OVERDUE_MAX_SIGTERM_DELAY") + setting(t, env, "OVERDUE_SHUTDOWN_TIMEOUT"); s.StopGracePeriod == nil || most >= time.Duration(*s.StopGracePeriod) {
			t.Errorf("%s: a stop may take %v, Compose gives %v", folder, most, s.StopGracePeriod)
		}
		if len(s.Ports) != 1 || ":"+itoa(int32(s.Ports[0].Target)) != env["OVERDUE_LISTEN_PROBES"] || s.Ports[0].HostIP != "127.0.0.1" {
			t.Errorf("%s: ports %v, listen.probes %s", folder, s.Ports, env["OVERDUE_LISTEN_PROBES"])
		}
		if s.Image != "overdue" || s.Build != nil {
			t.Errorf("%s: overdue is %q, built from %+v; want the image of make image", folder, s.Image, s.Build)
		}
		app := project.Services["app"]
		if app.NetworkMode != "service:overdue" {
			t.Errorf("%s: the app has a network of its own, and the endpoints are on loopback", folder)
		}
		if on := app.DependsOn["overdue"]; on.Condition != types.ServiceConditionHealthy {
			t.Errorf("%s: the app starts before its sidecar is ready", folder)
		}
	}
	for _, c := range compose(t, "../compose/embedded").Configs {
		checkFile(t, "compose/embedded", c.Content)
	}
	// Without ACCEPT_EULA the licences are not accepted, and an error says so.
	_, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir: "../compose/emulator", Environment: types.Mapping{}, ConfigFiles: []types.ConfigFile{{Filename: "../compose/emulator/compose.yaml"}},
	})
	if err == nil || !strings.Contains(err.Error(), "ACCEPT_EULA=Y") {
		t.Errorf("without ACCEPT_EULA: %v, want an error that names it", err)
	}
}

// No compiler for Bicep is to be had here. The test finds errors that nothing else would show:
// names and values that are settings' too.
func TestBicepNamesWhatThereIs(t *testing.T) {
	main := read(t, "../bicep/main.bicep")
	for what, want := range map[string]string{
		"the default of monitorQueue":    "param monitorQueue string = '" + variables(t)["OVERDUE_MONITOR_QUEUE"] + "'",
		"dead-lettering on expiry":       "deadLetteringOnMessageExpiration: true",
		"many deliveries of a companion": "maxDeliveryCount: 2000",
	} {
		if !strings.Contains(main, want) {
			t.Errorf("main.bicep lacks %s: %s", what, want)
		}
	}
	for _, file := range []string{"main.bicep", "container-apps.bicep"} {
		text := read(t, "../bicep/"+file)
		for _, pair := range []string{"{}", "[]", "()"} {
			if strings.Count(text, pair[:1]) != strings.Count(text, pair[1:]) {
				t.Errorf("%s: %s do not match", file, pair)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:param|var|resource) (\w+)`).FindAllStringSubmatch(text, -1) {
			if len(regexp.MustCompile(`\b`+m[1]+`\b`).FindAllString(text, -1)) < 2 && !regexp.MustCompile(`(?m)^resource `+m[1]+` `).MatchString(text) {
				t.Errorf("%s declares %s and does not use it", file, m[1])
			}
		}
	}
	apps := read(t, "../bicep/container-apps.bicep")
	blocks := regexp.MustCompile(`(?m)^resource \w+ 'Microsoft.App`).Split(apps, -1)[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d container apps, want an app and the monitor", len(blocks))
	}
	outputs := regexp.MustCompile(`(?m)^output (\w+) string`)
	for _, m := range regexp.MustCompile(`(?m)^param (namespace|\w+Identity|\w+ClientId) string$`).FindAllStringSubmatch(apps, -1) {
		if !strings.Contains(main, "output "+m[1]+" string") {
			t.Errorf("container-apps.bicep takes %s, which is none of the outputs of main.bicep: %v", m[1], outputs.FindAllString(main, -1))
		}
	}
	for _, block := range blocks {
		env := map[string]string{}
		for _, m := range regexp.MustCompile(`name: '(OVERDUE_\w+)', value: '?([^' }]+)`).FindAllStringSubmatch(block, -1) {
			env[m[1]] = m[2]
		}
		env["OVERDUE_NAMESPACE"] = "contoso.servicebus.windows.net"
		role := regexp.MustCompile(`args: \['(\w+)'\]`).FindStringSubmatch(block)[1]
		checkCommand(t, "Container App "+role, []string{role}, env)
		grace := time.Duration(atoi(t, regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindStringSubmatch(block)[1])) * time.Second
		if most := setting(t, env, "OVERDUE_MAX_SIGTERM_DELAY") + setting(t, env, "OVERDUE_SHUTDOWN_TIMEOUT"); most >= grace {
			t.Errorf("Container App %s: a stop may take %v, it has %v", role, most, grace)
		}
		for _, m := range regexp.MustCompile(`path: '/\w+', port: (\d+)`).FindAllStringSubmatch(block, -1) {
			if ":"+m[1] != env["OVERDUE_LISTEN_PROBES"] {
				t.Errorf("Container App %s: a probe asks at port %s, listen.probes is %s", role, m[1], env["OVERDUE_LISTEN_PROBES"])
			}
		}
	}
}

// Each command that a page tells somebody to run, runs.
func TestPagesNameCommandsThatThereAre(t *testing.T) {
	for _, page := range []string{"../README.md", "../helm/overdue/README.md", "../../docs/operate/start-and-stop.md", "../../docs/operate/troubleshoot.md", "../../docs/operate/rights.md"} {
		for _, m := range regexp.MustCompile("`(OVERDUE_[A-Z_]+)").FindAllStringSubmatch(read(t, page), -1) {
			if _, ok := variables(t)[m[1]]; !ok {
				t.Errorf("%s names %s, which is no variable", page, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`overdue ([a-z]+)((?: --?[a-z-]+(?: [^`$…< -][^`$…< ]*)?)*)[^`]*`").FindAllStringSubmatch(read(t, page), -1) {
			checkCommand(t, page, append([]string{m[1]}, strings.Fields(m[2])...), nil)
		}
	}
}

// The module deploy/release tests itself and deploy/systemd.
func TestEveryFileIsChecked(t *testing.T) {
	known := regexp.MustCompile(`^\.\./(README\.md|[a-z]+_test\.go|prometheus/|grafana/|helm/overdue/|kustomize/|keda/scaledobject\.yaml|compose/(embedded|emulator)/|bicep/(main|container-apps)\.bicep|terraform/(main|variables|outputs)\.tf|check/|cluster/|release/|systemd/)`)
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !known.MatchString(filepath.ToSlash(path)) {
			t.Errorf("%s is shipped and nothing looks at it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The overlays in deploy/README.md are what people copy. Where they stand, the copy of this
// repository has another path.
func TestTheOverlaysOfTheReadmeRender(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	overlays := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(overlays) != 2 {
		t.Fatalf("deploy/README.md has %d overlays, want those of the monitor and of an app", len(overlays))
	}
	app, err := os.ReadFile("testdata/kustomize/app/app.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, overlay := range overlays {
		dir := t.TempDir()
		deploy, err := filepath.Abs("..")
		if err == nil {
			deploy, err = filepath.Rel(dir, deploy)
		}
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(overlay[1], "overdue/deploy", deploy)
		text = strings.ReplaceAll(text, "contoso.", "fabrikam.") // which no file of ours says
		for name, b := range map[string][]byte{"kustomization.yaml": []byte(text), "app.yaml": app} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range workloads(t, objects(t, kustomize(t, dir))) {
			w.check(t)
			if got := w.env(t)["OVERDUE_NAMESPACE"]; got != "fabrikam.servicebus.windows.net" {
				t.Errorf("overlay %d: %s is for namespace %q, want the overlay's", i, w.name, got)
			}
			if got := w.container.Image; got != "registry.example.com/overdue:1.0" {
				t.Errorf("overlay %d: %s runs %s, want the overlay's image", i, w.name, got)
			}
		}
	}
}
