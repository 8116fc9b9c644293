// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"

	"overdue/internal/catalog"
	"overdue/internal/connect"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

// adminSource asks the administration API of a namespace as who we are there. Our own doors are not it.
func (p *process) adminSource(ns *connect.Namespace, tokens link.TokenSource, doors []net.Listener) (entities.Source, *http.Client, error) {
	var taken []string
	for _, ln := range doors {
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
