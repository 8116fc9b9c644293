// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/escape"
	"overdue/internal/operator/inject"
	"overdue/internal/servicebus/rest"
)

// Path is where an API server asks.
const Path = "/mutate"

const (
	// maxReview bounds a review. An API server takes no larger request itself.
	maxReview = 3 << 20
	// maxBodies bounds the bodies of all requests together.
	maxBodies = 32 << 20
)

// A Handler answers AdmissionReviews. Its methods are safe for concurrent use.
type Handler struct {
	c       Config
	bodies  *rest.Bodies
	slots   chan struct{} // reviews that are decided at once: decoding takes several times their size
	reviews *prometheus.CounterVec
}

// NewHandler uses the options, Refuse and Log of c.
func NewHandler(c Config, metrics prometheus.Registerer) *Handler {
	h := &Handler{
		c: c, bodies: rest.NewBodies(maxBodies), slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_injections_total",
			Help: "Pods that the webhook has seen: added = it got the sidecar, skipped = it needs none, failed = it cannot have one.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultAdded, resultSkipped, resultFailed} {
		h.reviews.WithLabelValues(result)
	}
	metrics.MustRegister(h.reviews)
	return h
}

// ServeHTTP answers one review.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, errors.New("the content type is not application/json"))
		return
	}
	interrupt := func() {
		// A connection without deadlines belongs to a test, and has nobody who waits.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	body, done, err := h.bodies.Read(r.Context(), http.MaxBytesReader(w, r.Body, maxReview), r.ContentLength, maxReview, interrupt)
	if err != nil {
		code := http.StatusBadRequest
		switch tooLarge := (*http.MaxBytesError)(nil); {
		case errors.As(err, &tooLarge):
			code = http.StatusRequestEntityTooLarge
		case errors.Is(err, rest.ErrNoRoom), errors.Is(err, rest.ErrSlowBody):
			code = http.StatusServiceUnavailable
		}
		fail(w, code, fmt.Errorf("read the body: %w", err))
		return
	}
	defer done()
	select {
	case h.slots <- struct{}{}:
	case <-r.Context().Done():
		return // nobody waits for the answer
	}
	text, err := h.answer(body)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		h.c.Log.Info("review not answered", zap.Error(err))
	}
}

// answer decides a review, and gives its slot back.
func (h *Handler) answer(body []byte) ([]byte, error) {
	defer func() { <-h.slots }()
	asked, err := readReview(body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(review{APIVersion: reviewVersion, Kind: reviewKind, Response: h.decide(asked)})
}

// fail answers with an error, of which an API server shows the beginning.
func fail(w http.ResponseWriter, code int, err error) {
	http.Error(w, escape.Text(err.Error()), code)
}

// Config is what a webhook needs.
type Config struct {
	Options inject.Options
	Refuse  bool // a pod that cannot have the sidecar is refused, and not created without it
	Log     *zap.Logger

	Listen, ListenProbes string
	// CertFile and KeyFile hold the certificate; "": Keeper makes it.
	CertFile, KeyFile string
	Keeper            *Keeper
}
