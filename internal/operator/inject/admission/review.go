// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"overdue/internal/escape"
	"overdue/internal/operator/inject"
)

// The version of AdmissionReview that is understood (kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers).
const (
	reviewVersion = "admission.k8s.io/v1"
	reviewKind    = "AdmissionReview"
	jsonPatch     = "JSONPatch"
)

// A review is an AdmissionReview, as far as it is used here.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID         string          `json:"uid"`
	Kind        groupKind       `json:"kind"`
	SubResource string          `json:"subResource"`
	Name        string          `json:"name"`
	Namespace   string          `json:"namespace"`
	Operation   string          `json:"operation"`
	Object      json.RawMessage `json:"object"`
}

type groupKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"` // encoding/json makes base64 of it, as the API wants
	PatchType string   `json:"patchType,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// A status is the one of Kubernetes.
type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Outcomes of a review, as the metric has them.
const (
	resultAdded   = "added"
	resultSkipped = "skipped"
	resultFailed  = "failed"
)

// maxWarning bounds a warning. Kubernetes wants at most 120 characters for a short one and drops
// what is longer than 4,096 in all.
const maxWarning = 1000

func readReview(body []byte) (*request, error) {
	var r review
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("the body is not an AdmissionReview: %w", err)
	}
	switch {
	case r.APIVersion != reviewVersion || r.Kind != reviewKind:
		return nil, fmt.Errorf("the body is %.80q of %.80q, and only %s of %s is understood", r.Kind, r.APIVersion, reviewKind, reviewVersion)
	case r.Request == nil || r.Request.UID == "":
		return nil, errors.New("the AdmissionReview has no request with a uid")
	}
	return r.Request, nil
}

// decide answers a review. Only a pod that is being created is changed.
func (h *Handler) decide(r *request) *response {
	answer := &response{UID: r.UID, Allowed: true}
	if r.Kind != (groupKind{"", "v1", "Pod"}) || r.SubResource != "" || r.Operation != "CREATE" {
		h.reviews.WithLabelValues(resultSkipped).Inc()
		return answer
	}
	fields := []zap.Field{zap.String("namespace", r.Namespace), zap.String("pod", podName(r))}
	changes, skipped, err := inject.Pod(r.Object, h.c.Options)
	if err == nil && skipped == "" {
		answer.Patch, err = json.Marshal(changes)
	}
	switch {
	case err != nil:
		h.reviews.WithLabelValues(resultFailed).Inc()
		h.c.Log.Warn("pod cannot have the sidecar", append(fields, zap.Bool("refused", h.c.Refuse), zap.Error(err))...)
		said := escape.Text(fmt.Sprintf("overdue: no sidecar: %.*s", maxWarning, strings.ReplaceAll(err.Error(), "\n", "; ")))
		if !h.c.Refuse {
			answer.Warnings = []string{said}
			return answer
		}
		answer.Allowed, answer.Status = false, &status{Code: http.StatusForbidden, Reason: "Forbidden", Message: said}
	case skipped != "":
		h.reviews.WithLabelValues(resultSkipped).Inc()
		h.c.Log.Debug("pod stays as it is", append(fields, zap.String("reason", skipped))...)
	default:
		answer.PatchType = jsonPatch
		h.reviews.WithLabelValues(resultAdded).Inc()
		h.c.Log.Info("sidecar added", fields...)
	}
	return answer
}

// podName is the name of the pod, or what its name will begin with.
func podName(r *request) string {
	if r.Name != "" {
		return r.Name
	}
	var pod struct {
		Metadata struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Object, &pod); err != nil {
		return "" // inject.Pod reports it
	}
	if pod.Metadata.Name != "" {
		return pod.Metadata.Name
	}
	return pod.Metadata.GenerateName
}
