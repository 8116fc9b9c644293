// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// `make inject-check` runs this file: it needs ten minutes to build Kubernetes for the first time.

package check

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cluster is an API server of Kubernetes with an etcd, and nothing that runs pods.
type cluster struct {
	url, dir string
	client   *http.Client
}

const adminToken = "token-of-the-administrator"

// tool builds a program of the module deploy/cluster.
func tool(t *testing.T, dir, pkg string) string {
	t.Helper()
	file := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_"))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, pkg)
	cmd.Dir = "../cluster"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return file
}

// background runs a program until the test ends, and shows the end of its log if that has failed.
func background(t *testing.T, file string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(file, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended by itself, and the log says why
		_ = cmd.Wait()
		if t.Failed() {
			text := log.Bytes()
			t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-3000):])
		}
	})
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir(), client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it makes its certificate itself
	}}}
	etcd, server := tool(t, c.dir, "go.etcd.io/etcd/server/v3"), tool(t, c.dir, "k8s.io/kubernetes/cmd/kube-apiserver")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	c.write(t, "tokens.csv", adminToken+`,admin,1,"system:masters"`+"\n")
	clients, peers, secure := "http://"+freeAddress(t), "http://"+freeAddress(t), freeAddress(t)
	background(t, etcd, "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync")
	_, port, err := net.SplitHostPort(secure)
	if err != nil {
		t.Fatal(err)
	}
	background(t, server, "--etcd-servers", clients, "--secure-port", port, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--cert-dir", filepath.Join(c.dir, "certificates"), "--token-auth-file", filepath.Join(c.dir, "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none", "--service-account-issuer", "https://kubernetes.test",
		"--service-account-key-file", filepath.Join(c.dir, "key.pem"), "--service-account-signing-key-file", filepath.Join(c.dir, "key.pem"),
		"--disable-admission-plugins", "ServiceAccount") // no controller makes accounts and their tokens here
	c.url = "https://" + secure
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		for {
			if code, _, err := c.do(ctx, http.MethodGet, path, nil); err == nil && code == http.StatusOK {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s of the API server is not there after five minutes", path)
			case <-time.After(200 * time.Millisecond): // it is another process
			}
		}
	}
	return c
}

func (c *cluster) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (c *cluster) do(ctx context.Context, method, path string, body any) (code int, answer []byte, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", "application/json")
	w, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(w.Body)
	return w.StatusCode, answer, errors.Join(err, w.Body.Close())
}

// collection is the path of the objects of a kind, and whether Kubernetes knows it by itself.
func collection(o object) (path string, known bool) {
	group, _, found := strings.Cut(o.apiVersion, "/")
	switch {
	case !found:
		path = "/api/" + o.apiVersion
	case group == "apps", group == "batch", group == "policy", strings.HasSuffix(group, ".k8s.io"):
		path = "/apis/" + o.apiVersion
	default:
		return "", false // of the Prometheus operator, of KEDA, of cert-manager
	}
	switch o.kind {
	case "Namespace", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration":
	default:
		namespace := o.typed.(meta.Object).GetNamespace()
		if namespace == "" {
			namespace = "default"
		}
		path += "/namespaces/" + namespace
	}
	plural := strings.ToLower(o.kind) + "s"
	if before, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = before + "ies"
	}
	return path + "/" + plural, true
}

// send has the API server create objects, and refuse fields that it does not know. It returns how many there were.
func (c *cluster) send(t *testing.T, what string, all []object, options string) (n int) {
	t.Helper()
	for _, o := range all {
		path, known := collection(o)
		if !known {
			continue
		}
		n++
		code, answer, err := c.do(t.Context(), http.MethodPost, path+"?fieldValidation=Strict"+options, o.typed)
		if err != nil || code != http.StatusCreated {
			t.Errorf("%s: %s %s: %d, %v\n%s", what, o.kind, o.name, code, err, answer)
		}
	}
	return n
}

// A real API server takes what `overdue inject`, the chart and Kustomize make, and runs the admission of the webhook.
func TestARealClusterTakesTheManifests(t *testing.T) {
	c := startCluster(t)
	prod := object{"v1", "Namespace", "prod", &core.Namespace{
		TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: meta.ObjectMeta{Name: "prod", Labels: map[string]string{"overdue.sidecar/inject": "enabled"}},
	}}
	c.send(t, "namespace", []object{prod}, "")

	in := []byte(read(t, "testdata/inject/app.yaml"))
	injected := inject(t, in, "--image", "registry.example.com/overdue:1.0", "--namespace", "contoso.servicebus.windows.net")
	sets := map[string][]byte{
		"inject, removed again": inject(t, injected, "--remove"), "Kustomize, monitor": kustomize(t, "../kustomize/central"), "Kustomize, sidecar": kustomize(t, "testdata/kustomize/app"),
		"chart": mustHelm(t, overdueChart(t), "v1.37.0", least), "chart, everything": mustHelm(t, overdueChart(t), "v1.37.0", everything),
		"chart, broker": mustHelm(t, overdueChart(t), "v1.37.0", withBroker), "chart, webhook": mustHelm(t, overdueChart(t), "v1.37.0", withWebhook),
		"chart as a dependency": mustHelm(t, appChart(t), "v1.37.0", ""),
	}
	for _, what := range slices.Sorted(maps.Keys(sets)) {
		t.Logf("%s: %d objects", what, c.send(t, what, objects(t, sets[what]), "&dryRun=All"))
	}
	t.Logf("inject: %d objects, stored", c.send(t, "inject", objects(t, injected), ""))
	stored := new(apps.Deployment)
	c.get(t, "/apis/apps/v1/namespaces/prod/deployments/shop", stored)
	if s := stored.Spec.Template.Spec.InitContainers[0]; s.Name != "overdue" || *s.RestartPolicy != core.ContainerRestartPolicyAlways || s.StartupProbe == nil {
		t.Errorf("the API server has %+v, want the sidecar first", s)
	}
	c.webhook(t)
}

func (c *cluster) get(t *testing.T, path string, into any) {
	t.Helper()
	code, answer, err := c.do(t.Context(), http.MethodGet, path, nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %s", code, answer)
	}
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatal(err)
	}
}

// webhook installs the chart with the webhook. The API server does not reach a Service here, so it gets an address and a certificate
// for it, in the place of cert-manager.
func (c *cluster) webhook(t *testing.T) {
	t.Helper()
	h := hookOf(t, withWebhook)
	c.send(t, "chart with the webhook", h.all, "")
	serve := func(args []string) (address string) {
		p := &process{of: &workload{name: h.deployment.Name}, probes: freeAddress(t)}
		address = freeAddress(t)
		p.run(t, map[string]string{"HOME": t.TempDir()}, append(args, "--listen="+address, "--listen-probes="+p.probes))
		p.answers(t, h.container().ReadinessProbe.HTTPGet.Path, "")
		return address
	}
	var shared []string
	for _, a := range h.container().Args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--config":
			a = "--config=" + writeFile(t, "{}\n")
			fallthrough
		default:
			shared = append(shared, a)
		case "--tls-cert-file", "--tls-key-file":
		}
	}
	path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + h.configuration.Name
	configuration := new(admissionregistration.MutatingWebhookConfiguration)
	c.get(t, path, configuration)

	// The certificate of such a server is for 127.0.0.1.
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	address := serve(append(slices.Clone(shared), "--tls-cert-file="+c.write(t, "tls.crt", string(ca)),
		"--tls-key-file="+c.write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))))
	to := &configuration.Webhooks[0].ClientConfig
	url := "https://" + address + *to.Service.Path
	to.Service, to.URL, to.CABundle = nil, &url, ca
	configuration.Name = "overdue-by-address"
	configuration.ObjectMeta = meta.ObjectMeta{Name: configuration.Name}
	if code, answer, err := c.do(t.Context(), http.MethodDelete, path, nil); err != nil || code != http.StatusOK {
		t.Fatalf("removing the configuration: %d, %v\n%s", code, err, answer)
	}
	c.send(t, "configuration", []object{{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", configuration.Name, configuration}}, "")
	c.createUntilSidecar(t)
}

// createUntilSidecar creates pods until one gets the sidecar: the API server takes a moment to see a configuration.
func (c *cluster) createUntilSidecar(t *testing.T) {
	t.Helper()
	for i := range 100 {
		pod := &core.Pod{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("shop-", i), Namespace: "prod"},
			Spec: core.PodSpec{Containers: []core.Container{{Name: "app", Image: "registry.example.com/shop:7"}}}}
		pod.Annotations = map[string]string{"overdue.sidecar/inject": "true", "overdue.sidecar/queues": "orders"}
		c.send(t, "pod", []object{{"v1", "Pod", pod.Name, pod}}, "")
		is := new(core.Pod)
		c.get(t, "/api/v1/namespaces/prod/pods/"+pod.Name, is)
		if len(is.Spec.InitContainers) == 0 {
			time.Sleep(100 * time.Millisecond) // of another process
			continue
		}
		s := is.Spec.InitContainers[0]
		if s.Name != "overdue" || *s.RestartPolicy != core.ContainerRestartPolicyAlways || !strings.Contains(is.Annotations["overdue.sidecar/config"], "orders") {
			t.Errorf("the API server and the webhook make %+v of the pod", is)
		}
		t.Logf("pod %d got the sidecar while the API server created it", i)
		return
	}
	t.Error("of 100 pods none got the sidecar")
}
