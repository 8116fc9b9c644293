// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

const withBroker = `
image: {repository: registry.example.com/overdue}
config: {broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}}
broker:
  enabled: true
  tlsSecret: broker-tls
  keysSecret: broker-keys
  keys: [{name: orders, send: true, listen: true, entity: orders}, {name: operator, manage: true}]
`

// The broker is one process on one volume: never two pods, and never a pod without the volume.
func TestTheChartRunsTheBrokerOnAVolume(t *testing.T) {
	for values, claim := range map[string]string{
		withBroker: "",
		withBroker + "  persistence: {existingClaim: mine}\n":                              "mine",
		withBroker + "  persistence: {size: 1Ti, storageClass: fast}\n":                    "",
		withBroker + "monitor: {replicas: 3, minAvailable: 1}\n":                           "",
		withBroker + "serviceMonitor: {enabled: true}\n":                                   "",
		withBroker + "networkPolicy: {appsFrom: [{podSelector: {matchLabels: {a: b}}}]}\n": "",
	} {
		all := objects(t, mustHelm(t, overdueChart(t), "v1.34.0", values))
		ws := workloads(t, all)
		if len(ws) != 1 {
			t.Fatalf("%s\n%d pods run Overdue, want one", values, len(ws))
		}
		ws[0].check(t)
		ws[0].mountSecrets(t)
		checkFile(t, "the broker's configuration", ws[0].file(t, "/etc/overdue/overdue.yaml"), "--role", "run")
		checkBrokersVolume(t, all, ws[0], claim)
	}
}

func checkBrokersVolume(t *testing.T, all []object, w workload, claim string) {
	t.Helper()
	set := only[*apps.StatefulSet](t, all)
	if *set.Spec.Replicas != 1 {
		t.Errorf("%d replicas, want one: a directory belongs to one process", *set.Spec.Replicas)
	}
	volume := w.volumeAt(t, w.env(t)["OVERDUE_BROKER_DIRECTORY"])
	templates := set.Spec.VolumeClaimTemplates
	switch existing := volume.PersistentVolumeClaim; {
	case claim != "" && (existing == nil || existing.ClaimName != claim || len(templates) > 0):
		t.Errorf("the broker's directory is on %+v with the claim templates %v, want the claim %s", volume, templates, claim)
	case claim == "" && (len(templates) != 1 || templates[0].Name != volume.Name || templates[0].Spec.Resources.Requests.Storage().IsZero()):
		t.Errorf("the broker's directory is on %+v with the claim templates %v, want that of a template", volume, templates)
	}
	if s := w.pod.SecurityContext; s == nil || s.FSGroup == nil || *s.FSGroup != imageUser(t) {
		t.Errorf("the security context of the pod is %+v, want the group of the image's user for the volume", s)
	}
	for _, o := range all {
		switch v := o.typed.(type) {
		case *core.Service:
			for k, want := range v.Spec.Selector {
				if w.labels[k] != want {
					t.Errorf("the Service %s selects %s=%s, the pod has %v", o.name, k, want, w.labels)
				}
			}
		case *networking.NetworkPolicy:
			if len(v.Spec.Ingress) != 2 || v.Spec.Ingress[1].Ports[0].Port.StrVal != "amqps" {
				t.Errorf("the NetworkPolicy admits %+v, want probes and apps", v.Spec.Ingress)
			}
		}
		if o.kind == "PodDisruptionBudget" || o.kind == "Pod" {
			t.Errorf("%s %s: a single pod has to be evicted, and nothing but the pod has the directory", o.kind, o.name)
		}
	}
}

// only is the object of a type of which there is one.
func only[T any](t *testing.T, all []object) (found T) {
	t.Helper()
	n := 0
	for _, o := range all {
		if v, ok := o.typed.(T); ok {
			found = v
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d objects of type %T, want one", n, found)
	}
	return found
}

// volumeAt is the volume that is mounted at the folder above a path. The history is in that folder,
// and a broker refuses a directory with files of something else.
func (w *workload) volumeAt(t *testing.T, file string) core.Volume {
	t.Helper()
	for _, m := range w.container.VolumeMounts {
		if m.MountPath != path.Dir(file) || m.ReadOnly {
			continue
		}
		for _, v := range w.pod.Volumes {
			if v.Name == m.Name {
				return v
			}
		}
	}
	t.Fatalf("%s: no volume that can be written to is mounted above %q: %v", w.name, file, w.container.VolumeMounts)
	return core.Volume{}
}

// mountSecrets writes the secrets of withBroker to where the container mounts them, below a folder
// of this machine.
func (w *workload) mountSecrets(t *testing.T) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]map[string][]byte{
		"broker-keys": {"orders": []byte(brokerKey), "operator": []byte(brokerKey)},
		"broker-tls": {
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		},
	}
	const mounts = "/run/secrets"
	dir := t.TempDir()
	for _, v := range w.pod.Volumes {
		if v.Secret == nil {
			continue
		}
		i := slices.IndexFunc(w.container.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == v.Name })
		mount := w.container.VolumeMounts[i]
		if !mount.ReadOnly {
			t.Errorf("%s: %s can be written to", w.name, mount.MountPath)
		}
		folder := filepath.Join(dir, strings.TrimPrefix(mount.MountPath, mounts))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range secrets[v.Secret.SecretName] {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	config := w.configMap("overdue")
	config["overdue.yaml"] = strings.ReplaceAll(config["overdue.yaml"], mounts, dir)
}

const brokerKey = "a-key-that-nobody-guesses"

func TestTheChartRefusesABrokerThatNobodyCouldUse(t *testing.T) {
	for values, want := range map[string]string{
		withBroker + "namespace: contoso.servicebus.windows.net\n":      "broker.enabled is for a release without namespace",
		withBroker + "namespaceSecret: {name: a}\n":                     "broker.enabled is for a release without namespace",
		withBroker + "webhook: {enabled: true}\n":                       "broker.enabled is for a release without namespace",
		strings.Replace(withBroker, "  tlsSecret: broker-tls\n", "", 1): "broker.tlsSecret",
		strings.Replace(withBroker, "keysSecret: broker-keys", "", 1):   "broker.keysSecret",
		strings.Replace(withBroker, "  keys: [", "  #", 1):              "broker.keys",
		withBroker + "  persistence: {size: big}\n":                     "size",
		withBroker + "  replicas: 2\n":                                  "replicas",
		withBroker + "config: {broker: {directry: /data}}\n":            "config",
	} {
		_, err := helm(t, overdueChart(t), "v1.34.0", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want an error that names %s", values, err, want)
		}
	}
}
