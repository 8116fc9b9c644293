// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
)

// relay is where every request of the REST API goes that is not a send: peek-lock,
// receive, settle, the administration of entities. The embedded broker speaks AMQP only, so
// there is nothing behind this door to relay them to.
func (p *Proxy) relay(r *http.Request) error {
	return fmt.Errorf("%w: %s %s", errUnsupported, r.Method, quoted(r.URL.Path))
}
