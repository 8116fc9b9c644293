// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net"
	"net/http"

	"overdue/internal/catalog"
	"overdue/internal/connect"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

// adminSource asks the administration API of a namespace, with our own credentials. Our own endpoints are not that API.
func (p *Process) adminSource(ns *connect.Namespace, tokens link.TokenSource, endpoints []net.Listener) (entities.Source, *http.Client, error) {
	var taken []string
	for _, ln := range endpoints {
		taken = append(taken, ln.Addr().String())
	}
	api, err := connect.AdminAPI(p.cfg, ns, tokens, taken...)
	if err != nil {
		return nil, nil, err
	}
	if len(api.Endpoints) == 0 {
		return catalog.Nowhere{}, api.Client, nil
	}
	return api, api.Client, nil
}
