// SPDX-License-Identifier: Apache-2.0

// Package admission adds the sidecar to pods while Kubernetes creates them. It serves a mutating
// admission webhook:
//
//	API server ──AdmissionReview of a pod, over TLS──▶ Handler ──▶ inject.Pod
//	           ◀──allowed, and a JSON Patch──────────
//
// A pod that cannot have the sidecar is created without it, with a warning, or refused, as
// [Config.Refuse] says. That has to agree with failurePolicy of the webhook: it decides for pods of
// which this process hears nothing. The certificate comes from files, which cert-manager renews.
package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/lifecycle"
	"overdue/internal/listener"
	"overdue/internal/operator/inject"
)

const (
	// stopDelay is how long the webhook serves after SIGTERM: so long may an API server not know yet
	// that this replica is going.
	stopDelay   = 5 * time.Second
	stopTimeout = 5 * time.Second
)

// Config is what a webhook needs.
type Config struct {
	Options inject.Options
	Refuse  bool // a pod that cannot have the sidecar is refused, and not created without it
	Log     *zap.Logger

	Listen, ListenProbes string
	CertFile, KeyFile    string // are read again when they change
}

// Serve serves the webhook and its probes until ctx ends. After SIGTERM it goes on for a few seconds,
// no longer ready.
func Serve(ctx context.Context, c Config) error {
	registry := prometheus.NewRegistry()
	certificate, err := listener.LoadCertificate(c.CertFile, c.KeyFile, func(err error) {
		if err != nil {
			c.Log.Warn("certificate not reloaded", zap.Error(err))
			return
		}
		c.Log.Info("certificate reloaded", zap.String("file", c.CertFile))
	})
	if err != nil {
		return err
	}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "overdue_certificate_expiry_timestamp_seconds", Help: "When the certificate of the webhook ends, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"use": "inject"},
	}, func() float64 { return float64(certificate.End().Unix()) }))
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, NewHandler(c, registry))
	life := lifecycle.New(c.Log, stopTimeout)
	port := &adminport.Port{Life: life, Metrics: registry}
	probes, err := net.Listen("tcp", c.ListenProbes)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), probes.Close())
	}
	serve(life, "probes", adminport.NewServer(port.Probes(), adminport.ProbesWriteTimeout, c.Log), adminport.LimitConns(probes))
	serve(life, "webhook", adminport.NewServer(mux, adminport.ProbesWriteTimeout, c.Log), tls.NewListener(adminport.LimitConns(ln), certificate.TLS))
	life.Serving()
	c.Log.Info("serving", zap.String("webhook", ln.Addr().String()), zap.String("probes", probes.Addr().String()))
	select {
	case <-ctx.Done():
		c.Log.Info("stopping")
	case err = <-life.Failed:
	}
	if errors.Is(context.Cause(ctx), lifecycle.ErrTerminated) {
		life.Delays = lifecycle.Delays{
			Min:  stopDelay,
			Max:  stopDelay,
			Apps: noApps{},
		}
	}
	return errors.Join(err, life.Drain())
}

func serve(life *lifecycle.Lifecycle, name string, s *http.Server, ln net.Listener) {
	life.Run(name, func() error {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, s.Shutdown)
}

// noApps keeps no connections: an API server opens one for each review.
type noApps struct{}

func (noApps) Drain(context.Context) error { return nil }
func (noApps) Connections() int            { return 0 }
