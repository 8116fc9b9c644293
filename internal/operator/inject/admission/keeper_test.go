// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/internal/listener"
)

// An api is the part of the API of Kubernetes that a Keeper uses. It takes nothing else.
type api struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	version  int
	data     map[string][]byte // of the Secret
	bundles  [][]byte          // of the webhooks
	writes   []string
	tokens   []string
	before   func(r *http.Request) (code int, message string) // another answer, unless the code is 0
	conflict func()                                           // something that happens before a write
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, bundles: [][]byte{nil}}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	return a
}

const (
	secretPath        = "/api/v1/namespaces/overdue/secrets/webhook"
	configurationPath = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/0-overdue"
)

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
	if a.before != nil {
		if code, message := a.before(r); code != 0 {
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind": "Status", "message": %q}`, message)
			return
		}
	}
	if r.Method != http.MethodGet {
		if a.conflict != nil {
			a.conflict()
		}
		a.writes = append(a.writes, r.URL.Path)
	}
	switch kind := r.Header.Get("Content-Type"); r.Method + " " + r.URL.Path {
	case "GET " + secretPath:
		a.answer(w, map[string]any{"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "data": a.data})
	case "PATCH " + secretPath:
		var s secret
		if err := json.Unmarshal(body, &s); err != nil || kind != "application/merge-patch+json" {
			a.t.Errorf("the Secret is changed with %s %s: %v", kind, body, err)
		}
		if s.Metadata.ResourceVersion != strconv.Itoa(a.version) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		a.version++
		a.data = s.Data
		a.answer(w, s)
	case "GET " + configurationPath:
		var hooks []any
		for i, b := range a.bundles {
			hooks = append(hooks, map[string]any{"name": fmt.Sprint("hook-", i), "clientConfig": map[string]any{"caBundle": b}})
		}
		a.answer(w, map[string]any{"webhooks": hooks})
	case "PATCH " + configurationPath:
		var changes []struct {
			Op, Path string
			Value    string
		}
		if err := json.Unmarshal(body, &changes); err != nil || kind != "application/json-patch+json" || len(changes)%2 != 0 {
			a.t.Errorf("the configuration is changed with %s %s: %v", kind, body, err)
		}
		for i := 0; i+1 < len(changes); i += 2 {
			var at int
			if _, err := fmt.Sscanf(changes[i].Path, "/webhooks/%d/name", &at); err != nil || changes[i].Op != "test" || changes[i].Value != fmt.Sprint("hook-", at) ||
				changes[i+1].Op != "add" || changes[i+1].Path != fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", at) {
				a.t.Errorf("operations %+v", changes[i:i+2])
				continue
			}
			if err := json.Unmarshal([]byte(`"`+changes[i+1].Value+`"`), &a.bundles[at]); err != nil {
				a.t.Error(err)
			}
		}
		a.answer(w, struct{}{})
	default:
		a.t.Errorf("the Keeper asks for %s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (a *api) answer(w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.t.Error(err)
	}
}

// account writes the files that a kubelet writes.
func (a *api) account(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	for name, text := range map[string][]byte{"token": []byte("a-token\n"), "ca.crt": ca, "namespace": []byte("overdue")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (a *api) keeper(t *testing.T) *Keeper {
	t.Helper()
	return &Keeper{
		Cluster: Cluster{Address: a.server.Listener.Addr().String(), Dir: a.account(t)},
		Secret:  "webhook", Configuration: "0-overdue", Names: []string{"webhook.overdue.svc"}, Log: zap.NewNop(),
	}
}

// trusts reports whether a client that trusts a bundle accepts what k serves.
func trusts(bundle []byte, k *Keeper) error {
	pair, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "webhook.overdue.svc"})
	return err
}

func TestACertificateIsMadeOnceAndTrusted(t *testing.T) {
	a := newAPI(t)
	a.bundles = [][]byte{nil, []byte("something else")}
	k, other := a.keeper(t), a.keeper(t)
	if err := k.Ready(); err == nil {
		t.Error("ready before there is a certificate")
	}
	if _, err := k.GetCertificate(nil); err == nil {
		t.Error("a handshake works before there is a certificate")
	}
	for range 2 {
		for _, k := range []*Keeper{k, other} {
			if err := k.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{secretPath, configurationPath}; !slices.Equal(a.writes, want) {
		t.Errorf("two replicas wrote %v, want %v", a.writes, want)
	}
	for i, b := range a.bundles {
		for _, k := range []*Keeper{k, other} {
			if err := trusts(b, k); err != nil {
				t.Errorf("webhook %d: %v", i, err)
			}
		}
	}
	for _, token := range a.tokens {
		if token != "Bearer a-token" {
			t.Errorf("a request has the authorization %q", token)
		}
	}
	// Somebody applies the configuration without its caBundle.
	a.bundles[0] = nil
	if err := k.Pass(t.Context()); err != nil || trusts(a.bundles[0], k) != nil {
		t.Errorf("a lost caBundle is not written again: %v", err)
	}
}

// Of two replicas that start at once, one makes the certificate, and the other takes it.
func TestTheCertificateOfAFasterReplicaStays(t *testing.T) {
	a := newAPI(t)
	k := a.keeper(t)
	theirs, err := listener.MakeBundle(k.Names, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.conflict = func() {
		if a.version == 0 {
			a.version, a.data = 1, map[string][]byte{certificateKey: theirs.Certificate, privateKey: theirs.Key, authoritiesKey: theirs.Authority}
		}
	}
	if err := k.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else has changed it") {
		t.Errorf("the Secret of the other replica is overwritten: %v", err)
	}
	if err := k.Pass(t.Context()); err != nil || !bytes.Equal(a.bundles[0], theirs.Authority) || trusts(theirs.Authority, k) != nil {
		t.Errorf("the certificate of the other replica is not taken: %v", err)
	}
}

// While the API server trusts one of the two authorities only, no replica serves what it does not trust.
func TestARenewalLeavesNoGap(t *testing.T) {
	a := newAPI(t)
	k, slow := a.keeper(t), a.keeper(t)
	old, err := listener.MakeBundle(k.Names, time.Now().Add(-800*24*time.Hour)) // it ends in 25 days
	if err != nil {
		t.Fatal(err)
	}
	a.data = map[string][]byte{certificateKey: old.Certificate, privateKey: old.Key, authoritiesKey: old.Authority}
	a.bundles[0] = old.Authority
	pair, err := tls.X509KeyPair(old.Certificate, old.Key)
	if err != nil {
		t.Fatal(err)
	}
	k.pair, slow.pair = &pair, &pair // as they have served it so far
	a.before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && r.URL.Path == configurationPath {
			return http.StatusInternalServerError, "etcd is away"
		}
		return 0, ""
	}
	if err := k.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd is away") {
		t.Errorf("the pass says %v, want the answer of the API", err)
	}
	if err := trusts(old.Authority, k); err != nil {
		t.Errorf("a certificate is served that the API server does not trust yet: %v", err)
	}
	if err := k.Ready(); err != nil {
		t.Errorf("not ready, although the old certificate is good: %v", err)
	}
	a.before = nil
	if err := k.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*Keeper{"renewed": k, "slow": slow} {
		if err := trusts(a.bundles[0], k); err != nil {
			t.Errorf("the %s replica is not trusted: %v", name, err)
		}
	}
	if trusts(old.Authority, k) == nil {
		t.Error("the certificate was not renewed")
	}
	if n := bytes.Count(a.bundles[0], []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Errorf("caBundle has %d authorities, want the new one and the one before", n)
	}
	if bytes.Contains(a.bundles[0], []byte("PRIVATE KEY")) {
		t.Error("caBundle has a key")
	}
}

func TestASecretThatCannotBeUsedIsReplaced(t *testing.T) {
	other, err := listener.MakeBundle([]string{"another.overdue.svc"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{
		"broken":       {certificateKey: []byte("x"), privateKey: []byte("y")},
		"another name": {certificateKey: other.Certificate, privateKey: other.Key, authoritiesKey: other.Authority},
		"no authority": {certificateKey: other.Certificate, privateKey: other.Key},
	} {
		a := newAPI(t)
		a.data = data
		k := a.keeper(t)
		if err := k.Pass(t.Context()); err != nil || trusts(a.bundles[0], k) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatKeepsACertificateFromBeingMade(t *testing.T) {
	for want, spoil := range map[string]func(*api, *Keeper){
		`403 Forbidden: secrets "webhook" is forbidden`: func(a *api, _ *Keeper) {
			a.before = func(*http.Request) (int, string) { return http.StatusForbidden, `secrets "webhook" is forbidden` }
		},
		"the configuration 0-overdue has no webhooks": func(a *api, _ *Keeper) { a.bundles = nil },
		"automountServiceAccountToken":                func(_ *api, k *Keeper) { k.Cluster.Dir = "/nowhere" },
		"certificate signed by unknown authority": func(_ *api, k *Keeper) {
			other, err := listener.MakeBundle([]string{"x"}, time.Now())
			if err == nil {
				err = os.WriteFile(filepath.Join(k.Cluster.Dir, "ca.crt"), other.Authority, 0o600)
			}
			if err != nil {
				panic(err)
			}
		},
		"has no certificate": func(_ *api, k *Keeper) {
			if err := os.WriteFile(filepath.Join(k.Cluster.Dir, "ca.crt"), []byte("x"), 0o600); err != nil {
				panic(err)
			}
		},
	} {
		a := newAPI(t)
		a.server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
		k := a.keeper(t)
		spoil(a, k)
		err := k.Pass(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || k.Ready() == nil {
			t.Errorf("the pass says %v, and it is ready: %v; want %q", err, k.Ready() == nil, want)
		}
	}
}

func TestOutsideOfAClusterIsAnError(t *testing.T) {
	if _, err := InCluster("", func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "this is no pod") {
		t.Errorf("InCluster = %v", err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	if c, err := InCluster("", func(k string) string { return env[k] }); err != nil || c.Address != "[fd00::1]:443" || c.Dir != ServiceAccountDir {
		t.Errorf("InCluster = %+v, %v", c, err)
	}
}
