// SPDX-License-Identifier: Apache-2.0

package atom

import (
	"cmp"
	"net/http"
	"strings"
)

// getNamespace answers /$namespaceinfo. The tier is Standard, whose sizes and
// partitions are what the other answers show.
func (c *call) getNamespace() error {
	if err := c.allow(Read, ""); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, entry{
		title: c.name(), path: "$namespaceinfo", updated: c.started, authored: true,
		content: func(w writer) {
			w.open("NamespaceInfo", "xmlns", nsEntity, "xmlns:i", nsInstance)
			w.text("CreatedTime", formatTime(c.started))
			w.text("MessagingSKU", "Standard")
			w.text("ModifiedTime", formatTime(c.started))
			w.text("Name", c.name())
			w.text("NamespaceType", "Messaging")
			w.close("NamespaceInfo")
		},
	})
}

// name of the namespace, which is where the name of the host begins.
func (c *call) name() string {
	host, _, _ := strings.Cut(c.r.Host, ".")
	host, _, _ = strings.Cut(host, ":")
	return cmp.Or(c.ns.Name(), host, "default")
}
