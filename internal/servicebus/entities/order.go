// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"bytes"
	"io"
	"net/http"

	"overdue/internal/servicebus/atom"
)

// InOrder makes a request of an SDK with do, its elements in the order of the service, and removes
// elements from the answer that do not hold. Otherwise the SDK for Go takes the forward and the
// metadata from a queue that it reads, changes and writes back. Or it puts settings in force that
// another client stated in vain.
func InOrder(r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = atom.InOrder(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(atom.Holding(body)))
	return resp, nil
}
