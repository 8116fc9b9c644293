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
