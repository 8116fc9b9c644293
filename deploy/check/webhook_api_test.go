// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// An apiServer is as much of an API server as the webhook needs: the objects that the chart has
// installed, for the account whose rights the chart has given. It patches with the library of the
// real one, and decodes every result strictly.
type apiServer struct {
	server *httptest.Server
	rules  []rbac.PolicyRule

	mu      sync.Mutex
	objects map[string]any // by path
	version int
	denied  []string
}

const apiToken = "token-of-the-webhook"

func startAPIServer(t *testing.T, all []object) *apiServer {
	a := &apiServer{objects: map[string]any{}}
	for _, o := range all {
		switch v := o.typed.(type) {
		case *core.Secret:
			a.objects["/api/v1/namespaces/default/secrets/"+v.Name] = v
		case *admissionregistration.MutatingWebhookConfiguration:
			a.objects["/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"+v.Name] = v
		case *rbac.Role:
			a.rules = append(a.rules, v.Rules...)
		case *rbac.ClusterRole:
			a.rules = append(a.rules, v.Rules...)
		}
	}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	t.Cleanup(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.denied) > 0 {
			t.Errorf("the webhook asks for what its roles do not allow: %v", a.denied)
		}
	})
	return a
}

// account is the folder of the service account, and the variables of a pod.
func (a *apiServer) account(t *testing.T) (dir string, env map[string]string) {
	t.Helper()
	dir = t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	for name, text := range map[string][]byte{"token": []byte(apiToken), "ca.crt": ca, "namespace": []byte("default")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(a.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return dir, map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
}

func (a *apiServer) allows(verb, path string) bool {
	parts := strings.Split(path, "/")
	resource, name := parts[len(parts)-2], parts[len(parts)-1]
	group := ""
	if parts[1] == "apis" {
		group = parts[2]
	}
	return slices.ContainsFunc(a.rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.ResourceNames, name)
	})
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	code, answer := a.serve(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a webhook that has ended does not read it
}

func (a *apiServer) serve(r *http.Request) (int, any) {
	verb := map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	no := func(code int, format string, args ...any) (int, any) {
		return code, map[string]string{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": fmt.Sprintf(format, args...)}
	}
	if r.Header.Get("Authorization") != "Bearer "+apiToken {
		a.denied = append(a.denied, "a request without the token")
		return no(http.StatusUnauthorized, "Unauthorized")
	}
	if !a.allows(verb, r.URL.Path) {
		a.denied = append(a.denied, verb+" "+r.URL.Path)
		return no(http.StatusForbidden, "%s %s is forbidden", verb, r.URL.Path)
	}
	o, ok := a.objects[r.URL.Path]
	if !ok {
		return no(http.StatusNotFound, "%s is not there", r.URL.Path)
	}
	if verb == "get" {
		return http.StatusOK, o
	}
	change, err := io.ReadAll(r.Body)
	if err != nil {
		return no(http.StatusBadRequest, "%v", err)
	}
	changed, err := a.patch(o, r.Header.Get("Content-Type"), change)
	if err != nil {
		return no(http.StatusUnprocessableEntity, "%v", err)
	}
	if changed == nil {
		return no(http.StatusConflict, "the object has been modified")
	}
	a.objects[r.URL.Path] = changed
	return http.StatusOK, changed
}

// patch returns the object as it is to be; nil: it has another resourceVersion than the patch.
func (a *apiServer) patch(o any, kind string, change []byte) (any, error) {
	before, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case "application/merge-patch+json":
		after, err = jsonpatch.MergePatch(before, change)
	case "application/json-patch+json":
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(change); err == nil {
			after, err = p.Apply(before)
		}
	default:
		err = fmt.Errorf("patches of type %q are not understood", kind)
	}
	if err != nil {
		return nil, err
	}
	a.version++
	version := strconv.Itoa(a.version)
	switch was := o.(type) {
	case *core.Secret:
		is := new(core.Secret)
		if err := yaml.UnmarshalStrict(after, is); err != nil {
			return nil, err
		}
		if is.ResourceVersion != was.ResourceVersion {
			return nil, nil
		}
		is.ResourceVersion = version
		return is, nil
	case *admissionregistration.MutatingWebhookConfiguration:
		is := new(admissionregistration.MutatingWebhookConfiguration)
		if err := yaml.UnmarshalStrict(after, is); err != nil {
			return nil, err
		}
		is.ResourceVersion = version
		return is, nil
	}
	return nil, fmt.Errorf("%T cannot be patched", o)
}

// configuration is the webhook's, as it is now.
func (a *apiServer) configuration() *admissionregistration.MutatingWebhookConfiguration {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.objects {
		if c, ok := o.(*admissionregistration.MutatingWebhookConfiguration); ok {
			return c
		}
	}
	return nil
}
