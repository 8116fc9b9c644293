// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/operator/inject/admission"
)

// webhookFlags say how the webhook is served.
type webhookFlags struct {
	admission.Config
	logLevel string
}

func (p *program) injectServeCommand() *cobra.Command {
	var i injectFlags
	var w webhookFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the webhook that adds the sidecar to pods as a cluster creates them",
		Long: "Serves a mutating admission webhook at " + admission.Path + ", for AdmissionReviews of version v1. Pods get the sidecar\n" +
			"that `overdue inject` adds, and its configuration in an annotation. Annotations of the pod take precedence over\n" +
			"the flags. The chart installs all that it needs (webhook.enabled).\n\n" +
			"The certificate comes from --tls-cert-file and --tls-key-file, which are read again when they change. In the\n" +
			"chart, cert-manager makes it.\n\n" +
			"Readiness, liveness and metrics are at --listen-probes.",
		Example: "  overdue inject serve --image registry.example.com/overdue:1.0 \\\n" +
			"    --namespace contoso.servicebus.windows.net \\\n    --tls-cert-file /tls/tls.crt --tls-key-file /tls/tls.key",
	}
	i.define(cmd)
	f := cmd.Flags()
	f.StringVar(&w.Listen, "listen", ":8443", "address of the webhook")
	f.StringVar(&w.ListenProbes, "listen-probes", ":9096", "address of probes and metrics")
	f.BoolVar(&w.Refuse, "refuse", false, "refuse a pod that cannot have the sidecar, instead of a warning; for failurePolicy: Fail")
	f.StringVar(&w.CertFile, "tls-cert-file", "", "certificate, PEM")
	f.StringVar(&w.KeyFile, "tls-key-file", "", "key of the certificate, PEM")
	f.StringVar(&w.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if w.Options, err = i.options(false); err == nil && (w.CertFile == "" || w.KeyFile == "") {
			err = errors.New("name a certificate with --tls-cert-file and its key with --tls-key-file")
		}
		if err != nil {
			return &config.Error{Err: err}
		}
		return p.serveInjection(cmd.Context(), &w)
	}
	return cmd
}

func (p *program) serveInjection(ctx context.Context, w *webhookFlags) error {
	log, _, err := app.NewLog(p.stderr, config.Log{Level: w.logLevel, Format: "auto"})
	if err != nil {
		return &config.Error{Err: fmt.Errorf("--log-level: %w", err)}
	}
	w.Log = log
	err = admission.Serve(ctx, w.Config)
	_ = log.Sync() // of a terminal or a pipe it fails for no reason
	return err
}
