// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net/http"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
)

// Tiers of a namespace.
const (
	standard = "Standard"
	premium  = "Premium"
)

// A space is the namespace of a request, as the service would describe it.
type space struct {
	*broker.Namespace
	host string // that the client asks
}

// tier is that whose messages are as large as the namespace's may be: more than
// 256 KiB there are on Premium alone.
func (s space) tier() string {
	if s.MaxMessageSize() > broker.DefaultMaxMessageSize {
		return premium
	}
	return standard
}

// getNamespace answers /$namespaceinfo.
func (c *call) getNamespace() error {
	if err := c.gate.allow(Read, ""); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, entry{
		title: c.ns.name(), updated: c.started, authored: true,
		content: func(w writer) {
			w.open("NamespaceInfo", "xmlns", nsEntity, "xmlns:i", nsInstance)
			w.text("CreatedTime", formatTime(c.started))
			w.text("MessagingSKU", c.ns.tier())
			if c.ns.tier() == premium {
				w.text("MessagingUnits", "1") // the service says it of this tier alone
			}
			w.text("ModifiedTime", formatTime(c.started))
			w.text("Name", c.ns.name())
			w.text("NamespaceType", "Messaging")
			w.close("NamespaceInfo")
		},
	})
}

// name of the namespace, which is where the name of the host begins.
func (s space) name() string {
	return cmp.Or(s.Name(), address.NamespaceName(s.host), "default")
}
