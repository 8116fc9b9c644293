// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	admission "k8s.io/api/admission/v1"

	"overdue/internal/operator/inject"
)

var options = inject.Options{Image: "registry.example.com/overdue:1.0", Namespace: "contoso.servicebus.windows.net", Identity: inject.IdentityWorkload}

const asked = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "7", "kind": {"group": "", "version": "v1", "kind": "%s"},
	"namespace": "prod", "operation": "%s", "object": %s}}`

const pod = `{"kind": "Pod", "metadata": {"generateName": "shop-"}, "spec": {"containers": [{"name": "app"}]%s}}`

func ask(h http.Handler, kind, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decided(t *testing.T, w *httptest.ResponseRecorder) admission.AdmissionResponse {
	t.Helper()
	var got admission.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || got.Response == nil || got.Response.UID != "7" ||
		got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Request != nil {
		t.Fatalf("answered %d %s, %v", w.Code, w.Body, err)
	}
	return *got.Response
}

func TestOnlyPodsThatAreCreatedAreChanged(t *testing.T) {
	metrics := prometheus.NewRegistry()
	h := NewHandler(Config{Options: options, Log: zap.NewNop()}, metrics)
	for body, changed := range map[string]bool{
		fmt.Sprintf(asked, "Pod", "CREATE", fmt.Sprintf(pod, "")):                                                                             true,
		fmt.Sprintf(asked, "Pod", "UPDATE", fmt.Sprintf(pod, "")):                                                                             false,
		fmt.Sprintf(asked, "Deployment", "CREATE", fmt.Sprintf(pod, "")):                                                                      false,
		strings.Replace(fmt.Sprintf(asked, "Pod", "CREATE", fmt.Sprintf(pod, "")), `"uid"`, `"subResource": "ephemeralcontainers", "uid"`, 1): false,
		fmt.Sprintf(asked, "Pod", "CREATE", fmt.Sprintf(pod, `, "os": {"name": "windows"}`)):                                                  false,
	} {
		got := decided(t, ask(h, "application/json; charset=utf-8", body))
		if !got.Allowed || (got.PatchType != nil && *got.PatchType == admission.PatchTypeJSONPatch) != changed || (len(got.Patch) > 0) != changed || len(got.Warnings) > 0 {
			t.Errorf("%s\nis answered with %+v; want it allowed, changed %v", body, got, changed)
		}
	}
	want := `# HELP overdue_injections_total Pods that the webhook has seen: added = it got the sidecar, skipped = it needs none, failed = it cannot have one.
# TYPE overdue_injections_total counter
overdue_injections_total{result="added"} 1
overdue_injections_total{result="failed"} 0
overdue_injections_total{result="skipped"} 4
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Whether a pod that cannot have the sidecar is created is the operator's choice.
func TestPodsThatCannotHaveTheSidecar(t *testing.T) {
	body := fmt.Sprintf(asked, "Pod", "CREATE", fmt.Sprintf(pod, `, "hostNetwork": true`))
	const why = "overdue: no sidecar: its pods use the network of the node"
	got := decided(t, ask(NewHandler(Config{Options: options, Log: zap.NewNop()}, prometheus.NewRegistry()), "application/json", body))
	if !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], why) || got.Patch != nil {
		t.Errorf("answered %+v; want it created without the sidecar, and a warning", got)
	}
	got = decided(t, ask(NewHandler(Config{Options: options, Refuse: true, Log: zap.NewNop()}, prometheus.NewRegistry()), "application/json", body))
	if got.Allowed || got.Result == nil || got.Result.Code != http.StatusForbidden || !strings.Contains(got.Result.Message, why) {
		t.Errorf("answered %+v; want it refused", got)
	}
	several := strings.Replace(body, `"generateName"`, `"annotations": {"overdue.sidecar/cpu": "much", "overdue.sidecar/image": "a\u202e b"}, "generateName"`, 1)
	got = decided(t, ask(NewHandler(Config{Options: options, Log: zap.NewNop()}, prometheus.NewRegistry()), "application/json", several))
	if len(got.Warnings) != 1 || strings.ContainsAny(got.Warnings[0], "\n\u202e") {
		t.Errorf("the warnings are %q; want one line without characters that hide", got.Warnings)
	}
}

func TestRequestsThatAreNoReviews(t *testing.T) {
	h := NewHandler(Config{Options: options, Log: zap.NewNop()}, prometheus.NewRegistry())
	for name, c := range map[string]struct {
		kind, body, want string
		code             int
	}{
		"another type":    {"text/plain", "{}", "the content type is not application/json", http.StatusUnsupportedMediaType},
		"no JSON":         {"application/json", "{", "the body is not an AdmissionReview", http.StatusBadRequest},
		"another version": {"application/json", strings.Replace(fmt.Sprintf(asked, "Pod", "CREATE", "{}"), "/v1", "/v1beta1", 1), "only AdmissionReview of admission.k8s.io/v1", http.StatusBadRequest},
		"another kind":    {"application/json", strings.Replace(fmt.Sprintf(asked, "Pod", "CREATE", "{}"), "AdmissionReview", "Pod", 1), `the body is "Pod"`, http.StatusBadRequest},
		"no uid":          {"application/json", strings.Replace(fmt.Sprintf(asked, "Pod", "CREATE", "{}"), `"7"`, `""`, 1), "no request with a uid", http.StatusBadRequest},
		"no request":      {"application/json", `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, "no request with a uid", http.StatusBadRequest},
		"too large":       {"application/json", `"` + strings.Repeat("a", maxReviewBytes) + `"`, "too large", http.StatusRequestEntityTooLarge},
	} {
		w := ask(h, c.kind, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: answered %d %s, want %d %q", name, w.Code, w.Body, c.code, c.want)
		}
	}
	if used := h.bodies.Used(); used != 0 {
		t.Errorf("%d bytes are taken with no request there", used)
	}
}
