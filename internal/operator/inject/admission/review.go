// SPDX-License-Identifier: Apache-2.0

package admission

import "encoding/json"

// A review is an AdmissionReview, as far as it matters here
// (kubernetes.io/docs/reference/config-api/apiserver-admission.v1). Package admission/v1 of k8s.io/api
// costs 2 MiB of the binary and 1 MiB of every process's memory.
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
