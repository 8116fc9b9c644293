// SPDX-License-Identifier: Apache-2.0

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
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// issue is what cert-manager does for the webhook: a certificate in the volume, and its authority in the configuration.
func (h *hook) issue(t *testing.T) (dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		DNSNames:              []string{h.service.Name + ".default.svc"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	for name, text := range map[string][]byte{"tls.crt": public, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.configuration.Webhooks[0].ClientConfig.CABundle = public
	return dir
}

// start runs the container, and returns its address.
func (h *hook) start(t *testing.T) (address string, p *process) {
	t.Helper()
	config := ""
	for _, o := range h.all {
		if c, ok := o.typed.(*core.ConfigMap); ok && c.Name == h.deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Name {
			config = c.Data["overdue.yaml"]
		}
	}
	p = &process{of: &workload{name: h.deployment.Name}, probes: freeAddress(t)}
	address = freeAddress(t)
	args := append(slices.Clone(h.container().Args), "--listen="+address, "--listen-probes="+p.probes)
	mounts := strings.NewReplacer("/etc/overdue/overdue.yaml", writeFile(t, config), h.container().VolumeMounts[1].MountPath, h.issue(t))
	for i, arg := range args {
		args[i] = mounts.Replace(arg)
	}
	p.run(t, map[string]string{"HOME": t.TempDir()}, args)
	for _, probe := range []*core.Probe{h.container().StartupProbe, h.container().LivenessProbe, h.container().ReadinessProbe} {
		p.answers(t, probe.HTTPGet.Path, "")
	}
	return address, p
}

// call asks the webhook as an API server does: at the name of the Service, with caBundle.
func (h *hook) call(t *testing.T, address string, pod *core.Pod, dryRun bool) (*admission.AdmissionReview, error) {
	t.Helper()
	w := h.configuration.Webhooks[0]
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ClientConfig.CABundle)
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	kind := meta.GroupVersionKind{Version: "v1", Kind: "Pod"}
	asked := admission.AdmissionReview{
		TypeMeta: meta.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admission.AdmissionRequest{
			UID: types.UID("705ab4f5-6393-11e8-b7cc-42010a800002"), Kind: kind, RequestKind: &kind, Resource: meta.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name: pod.Name, Namespace: pod.Namespace, Operation: admission.Create, DryRun: &dryRun, Object: runtime.RawExtension{Raw: object},
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	}
	asked.Request.UserInfo.Username = "system:serviceaccount:kube-system:replicaset-controller"
	body, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	service := w.ClientConfig.Service
	client := &http.Client{Timeout: time.Duration(*w.TimeoutSeconds) * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: service.Name + "." + service.Namespace + ".svc"},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		DisableKeepAlives: true,
	}}
	resp, err := client.Post(fmt.Sprintf("https://%s.%s.svc:%d%s?timeout=5s", service.Name, service.Namespace, *service.Port, *service.Path), "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	got := new(admission.AdmissionReview)
	if err := yaml.UnmarshalStrict(text, got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got.APIVersion != asked.APIVersion || got.Kind != asked.Kind || got.Response == nil || got.Response.UID != asked.Request.UID {
		t.Fatalf("the answer is %s", text)
	}
	return got, nil
}

// patched is the pod after a review.
func patched(t *testing.T, pod *core.Pod, r *admission.AdmissionReview) *core.Pod {
	t.Helper()
	if !r.Response.Allowed || len(r.Response.Warnings) > 0 || r.Response.PatchType == nil || *r.Response.PatchType != admission.PatchTypeJSONPatch {
		t.Fatalf("the answer is %+v", r.Response)
	}
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(r.Response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Apply(before)
	if err != nil {
		t.Fatalf("%v\n%s\non\n%s", err, r.Response.Patch, before)
	}
	is := new(core.Pod)
	if err := yaml.UnmarshalStrict(after, is); err != nil {
		t.Fatalf("%v in\n%s", err, after)
	}
	return is
}
