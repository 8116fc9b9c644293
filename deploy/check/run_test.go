// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// The tests run the program with the arguments, the variables and the files of the manifests'
// containers. The broker that comes with the program takes the place of a namespace. Ports are
// others, because all of them are on one machine.

const timeout = 2 * time.Minute

func TestTheChartsMonitorKeepsTheDeadlinesOfTheChartsSidecars(t *testing.T) {
	monitor := workloads(t, objects(t, mustHelm(t, overdueChart(t), "v1.34.0", least)))[0]
	for _, version := range []string{"v1.28.0", "v1.34.0"} { // classic, native
		sidecar := workloads(t, objects(t, mustHelm(t, appChart(t), version, "")))[0]
		keepsADeadline(t, monitor, sidecar)
	}
}

func TestTheMonitorOfKustomizeKeepsTheDeadlinesOfItsSidecars(t *testing.T) {
	monitor := workloads(t, objects(t, kustomize(t, "../kustomize/central")))[0]
	sidecar := workloads(t, objects(t, kustomize(t, "testdata/kustomize/app")))[0]
	keepsADeadline(t, monitor, sidecar)
}

func keepsADeadline(t *testing.T, monitor, sidecar workload) {
	t.Helper()
	namespace := startBroker(t, "--config", writeFile(t, "broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\n"),
		"--monitor-queue", "overdue-monitor")
	s, m := sidecar.start(t, namespace), monitor.start(t, namespace)
	for _, p := range []*process{s, m} {
		for _, probe := range []*core.Probe{p.of.container.StartupProbe, p.of.container.LivenessProbe, p.of.container.ReadinessProbe} {
			if probe != nil {
				p.answers(t, probe.HTTPGet.Path, "")
			}
		}
	}
	s.send(t, "order-1")
	m.answers(t, "/metrics", `overdue_deadlines_total{entity="orders",verdict="missed"} 1`)
	s.end(t)
	m.end(t)
}

func TestComposeKeepsDeadlines(t *testing.T) {
	for _, folder := range []string{"embedded", "emulator"} {
		project := compose(t, "../compose/"+folder)
		service := project.Services["overdue"]
		w := workload{name: folder}
		w.container.Args = service.Command
		for k, v := range service.Environment {
			w.container.Env = append(w.container.Env, core.EnvVar{Name: k, Value: *v})
		}
		for _, c := range project.Configs {
			w.mount("/etc/overdue", map[string]string{"overdue.yaml": c.Content})
		}
		namespace := ""
		if folder == "emulator" {
			// The file has the monitor queue, as it must for the emulator; ours would make it by itself.
			namespace = startBroker(t, "--broker-emulator-config", "../compose/emulator/Config.json", "--monitor-queue", "another")
		}
		p := w.start(t, namespace)
		// The commands of the service app with curl.
		app := project.Services["app"].Command
		address, properties := app[slices.IndexFunc(app, func(a string) bool { return strings.HasPrefix(a, "http://") })], app[slices.Index(app, "--header")+1]
		if !strings.HasPrefix(address, "http://127.0.0.1:5300/") {
			t.Errorf("%s: the app sends to %s, the REST endpoint is at 127.0.0.1:5300", folder, address)
		}
		name, value, _ := strings.Cut(properties, ": ")
		p.post(t, strings.TrimPrefix(address, "http://127.0.0.1:5300"), name, value)
		p.answers(t, "/metrics", `overdue_deadlines_total{entity="orders",verdict="missed"} 1`)
		if folder == "embedded" {
			p.kill(t)
			p = w.start(t, "")
			p.receive(t, "/orders/$DeadLetterQueue", "")
		}
		p.end(t)
	}
}

func TestTheChartsBrokerKeepsItsQueues(t *testing.T) {
	w := workloads(t, objects(t, mustHelm(t, overdueChart(t), "v1.34.0", withBroker)))[0]
	w.mountSecrets(t)
	p := w.start(t, "")
	token := signature("http://127.0.0.1/orders", "orders", brokerKey)
	p.post(t, "/orders/messages", "Authorization", token)
	p.kill(t)
	p = w.start(t, "")
	p.receive(t, "/orders", token)
	p.end(t)
}

// signature is the token of an app that signs in with a key.
func signature(resource, name, key string) string {
	expiry := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "%s\n%s", url.QueryEscape(resource), expiry)
	return "SharedAccessSignature " + url.Values{
		"sr":  {resource},
		"sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
		"se":  {expiry},
		"skn": {name},
	}.Encode()
}

// mount gives the container files of a ConfigMap.
func (w *workload) mount(path string, data map[string]string) {
	name := fmt.Sprint("files-", len(w.objects))
	w.objects = append(w.objects, object{kind: "ConfigMap", name: name, typed: &core.ConfigMap{Data: data}})
	w.pod.Volumes = append(w.pod.Volumes, core.Volume{Name: name, VolumeSource: core.VolumeSource{ConfigMap: &core.ConfigMapVolumeSource{LocalObjectReference: core.LocalObjectReference{Name: name}}}})
	w.container.VolumeMounts = append(w.container.VolumeMounts, core.VolumeMount{Name: name, MountPath: path})
}

// A process runs what a container would.
type process struct {
	of                  *workload
	cmd                 *exec.Cmd
	rest, admin, probes string
	log                 string // a file
}

func (w *workload) start(t *testing.T, namespace string) *process {
	t.Helper()
	p := &process{of: w, rest: freeAddress(t), admin: freeAddress(t), probes: freeAddress(t)}
	env := w.env(t)
	maps.Copy(env, map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": p.rest, "OVERDUE_LISTEN_ADMIN": p.admin, "OVERDUE_LISTEN_PROBES": p.probes,
		"OVERDUE_BROKER_LISTEN": freeAddress(t), "HOME": t.TempDir(), "OVERDUE_UNATTENDED": "true", // as in the image
	})
	if dir := env["OVERDUE_BROKER_DIRECTORY"]; dir != "" {
		if w.data == "" {
			w.data = t.TempDir()
		}
		env["OVERDUE_BROKER_DIRECTORY"] = filepath.Join(w.data, filepath.Base(dir))
	}
	if slices.ContainsFunc(w.container.Ports, func(p core.ContainerPort) bool { return p.Name == "amqps" }) {
		env["OVERDUE_LISTEN_AMQPS"] = freeAddress(t)
	}
	if namespace != "" {
		env["OVERDUE_NAMESPACE"] = namespace
	}
	args := slices.Clone(w.container.Args)
	if i := slices.Index(args, "--config"); i >= 0 {
		args[i+1] = writeFile(t, w.file(t, args[i+1]))
	}
	p.run(t, env, args)
	if hook := w.container.Lifecycle; hook != nil {
		command := hook.PostStart.Exec.Command
		if command[0] != "/overdue" {
			t.Fatalf("%s: the image has no %s", w.name, command[0])
		}
		wait := exec.CommandContext(t.Context(), program(t), command[1:]...)
		wait.Env = p.cmd.Env
		if out, err := wait.CombinedOutput(); err != nil {
			t.Fatalf("%s: postStart: %v\n%s", w.name, err, out)
		}
	}
	p.wait(t)
	return p
}

// startBroker runs `overdue broker` and returns its connection string.
func startBroker(t *testing.T, args ...string) (namespace string) {
	t.Helper()
	p := &process{admin: freeAddress(t)}
	listen := freeAddress(t)
	p.run(t, map[string]string{"HOME": t.TempDir()}, append([]string{"broker", "--broker-listen", listen, "--listen-admin", p.admin}, args...))
	p.wait(t)
	return "Endpoint=sb://" + listen + ";SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
}

func (p *process) run(t *testing.T, env map[string]string, args []string) {
	t.Helper()
	p.log = filepath.Join(t.TempDir(), "log")
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(program(t), args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	for k, v := range env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // unless it has ended
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("overdue %s:\n%s", strings.Join(args, " "), read(t, p.log))
		}
	})
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program(t), "wait", "--listen-admin", p.admin, "--timeout", timeout.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, read(t, p.log))
	}
}

// answers waits until what other machines may ask answers 200 with this text.
func (p *process) answers(t *testing.T, path, want string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + p.probes + path)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(body), want) {
			return
		}
		last = fmt.Sprint(resp.Status, "\n", string(body))
	}
	t.Fatalf("%s: GET %s never answered %q; the last answer was %s", p.of.name, path, want, last)
}

// send sends a message that has a second to live.
func (p *process) send(t *testing.T, id string) {
	t.Helper()
	p.post(t, "/orders/messages", "BrokerProperties", fmt.Sprintf(`{"MessageId": %q, "TimeToLive": 1}`, id))
}

func (p *process) post(t *testing.T, path, header, value string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.rest+path, strings.NewReader("one coffee"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(header, value)
	r.Close = true // an app that is not connected is not waited for
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: send: %s", p.of.name, resp.Status)
	}
}

// receive takes the message of post from a queue.
func (p *process) receive(t *testing.T, queue, token string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+p.rest+queue+"/messages/head", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != "one coffee" {
		t.Fatalf("%s: receive: %s, %q, %v; want one coffee", p.of.name, resp.Status, body, err)
	}
}

// kill ends the process without a word.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// end stops the process as every container is stopped.
func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s: SIGTERM: %v", p.of.name, err)
	}
}

// freeAddress is one below the ports that connections get by themselves, so that none takes it
// before the program does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close() // it was only asked whether it is free
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
