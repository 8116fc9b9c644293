// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/escape"
	"overdue/internal/operator/inject"
	"overdue/internal/servicebus/rest"
)

// Path is where an API server asks.
const Path = "/mutate"

const reviewKind, reviewVersion = "AdmissionReview", "admission.k8s.io/v1"

const (
	// maxReviewBytes bounds a review. An API server takes no larger request itself.
	maxReviewBytes = 3 << 20
	// maxBodiesBytes bounds the bodies of all requests together, which decoding takes several times.
	maxBodiesBytes = 8 << 20
	// maxWarningBytes bounds a warning. Kubernetes drops what is longer than 4,096 in all.
	maxWarningBytes = 1000
)

// Outcomes of a review, as the metric has them.
const (
	resultAdded   = "added"
	resultSkipped = "skipped"
	resultFailed  = "failed"
)

// A Handler answers AdmissionReviews. Its methods are safe for concurrent use.
type Handler struct {
	c       Config
	bodies  *rest.Bodies
	reviews *prometheus.CounterVec
}

// NewHandler uses the options, Refuse and Log of c.
func NewHandler(c Config, metrics prometheus.Registerer) *Handler {
	reviews := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_injections_total",
		Help: "Pods that the webhook has seen: added = it got the sidecar, skipped = it needs none, failed = it cannot have one.",
	}, []string{"result"})
	for _, result := range []string{resultAdded, resultSkipped, resultFailed} {
		reviews.WithLabelValues(result)
	}
	metrics.MustRegister(reviews)
	return &Handler{
		c:       c,
		bodies:  rest.NewBodies(maxBodiesBytes),
		reviews: reviews,
	}
}

// ServeHTTP answers one review.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, err := h.review(w, r)
	if err != nil {
		http.Error(w, escape.Text(err.Error()), code) // an API server shows the beginning
	}
}

func (h *Handler) review(w http.ResponseWriter, r *http.Request) (code int, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("the content type is not application/json")
	}
	interrupt := func() {
		// A connection without deadlines belongs to a test, and has nobody who waits.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	body, done, err := h.bodies.Read(r.Context(), http.MaxBytesReader(w, r.Body, maxReviewBytes), r.ContentLength, maxReviewBytes, interrupt)
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return http.StatusServiceUnavailable, fmt.Errorf("read the body: %w", err)
	}
	defer done()
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil {
		return http.StatusBadRequest, fmt.Errorf("the body is not an AdmissionReview: %w", err)
	}
	if asked.Kind != reviewKind || asked.APIVersion != reviewVersion {
		return http.StatusBadRequest, fmt.Errorf("the body is %.80q of %.80q, and only %s of %s is understood", asked.Kind, asked.APIVersion, reviewKind, reviewVersion)
	}
	if asked.Request == nil || asked.Request.UID == "" {
		return http.StatusBadRequest, errors.New("the AdmissionReview has no request with a uid")
	}
	w.Header().Set("Content-Type", "application/json")
	asked.Request, asked.Response = nil, h.decide(asked.Request)
	if err := json.NewEncoder(w).Encode(asked); err != nil {
		h.c.Log.Info("review not answered", zap.Error(err))
	}
	return http.StatusOK, nil
}

// decide answers a request. Only a pod that is being created is changed.
func (h *Handler) decide(r *request) *response {
	answer := &response{UID: r.UID, Allowed: true}
	isPod := r.Kind.Group == "" && r.Kind.Version == "v1" && r.Kind.Kind == "Pod"
	if !isPod || r.SubResource != "" || r.Operation != "CREATE" {
		h.reviews.WithLabelValues(resultSkipped).Inc()
		return answer
	}
	var pod struct {
		Metadata struct{ GenerateName string }
	}
	var changes []inject.Operation
	var skipped string
	err := json.Unmarshal(r.Object, &pod)
	if err == nil {
		changes, skipped, err = inject.Pod(r.Object, h.c.Options)
	}
	if err == nil && skipped == "" {
		answer.Patch, err = json.Marshal(changes)
	}
	log := h.c.Log.With(zap.String("namespace", r.Namespace), zap.String("pod", r.Name+pod.Metadata.GenerateName))
	switch {
	case err != nil:
		h.reviews.WithLabelValues(resultFailed).Inc()
		log.Warn("pod cannot have the sidecar", zap.Bool("refused", h.c.Refuse), zap.Error(err))
		said := escape.Text(fmt.Sprintf("overdue: no sidecar: %.*s", maxWarningBytes, strings.ReplaceAll(err.Error(), "\n", "; ")))
		if !h.c.Refuse {
			answer.Warnings = []string{said}
			return answer
		}
		answer.Allowed = false
		answer.Status = &status{
			Code:    http.StatusForbidden,
			Reason:  "Forbidden",
			Message: said,
		}
	case skipped != "":
		h.reviews.WithLabelValues(resultSkipped).Inc()
		log.Debug("pod stays as it is", zap.String("reason", skipped))
	default:
		h.reviews.WithLabelValues(resultAdded).Inc()
		log.Info("sidecar added")
		answer.PatchType = "JSONPatch"
	}
	return answer
}

// A review is an AdmissionReview, as far as it matters here
// (kubernetes.io/docs/reference/config-api/apiserver-admission.v1). Package admission/v1 of
// k8s.io/api costs 2 MiB of the binary and 1 MiB of every process's memory.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID, SubResource, Name, Namespace, Operation string

	Kind   struct{ Group, Version, Kind string }
	Object json.RawMessage
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"`
	PatchType string   `json:"patchType,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
