// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
)

// banner tells whoever typed the command what listens where. It goes to stdout; the log
// goes to stderr.
func (p *process) banner(w io.Writer) {
	var b strings.Builder
	row := func(what, where, note string) { fmt.Fprintf(&b, "  %-16s %-28s %s\n", what, where, note) }
	fmt.Fprintf(&b, "overdue %s: %s\n\n", p.role.name, p.role.short)
	if p.doorAddr != "" {
		row("REST door", "http://"+p.doorAddr, "POST /{queue}/messages; "+p.monitored())
	}
	row("admin", "http://"+p.adminAddr, "/readyz, /metrics")
	if p.brokerAddr != "" {
		row("embedded broker", "amqp://"+p.brokerAddr, "direct: what is sent here is not monitored")
	}
	if p.namespace != nil && !p.cfg.embedded() {
		row("namespace", p.namespace.host, "monitor queue "+p.cfg.MonitorQueue)
	}
	if p.role.proxy {
		fmt.Fprintf(&b, "\nThe AMQP door (listen.amqp) comes in a later release; nothing listens on %s yet.\n", p.cfg.Listen.AMQP)
	}
	if p.brokerAddr != "" {
		fmt.Fprintf(&b, "\nConnection string of the embedded broker, to paste into an app:\n  %s\n", embeddedConnectionString(p.brokerAddr))
	}
	_, _ = io.WriteString(w, b.String()) // nobody reads it, nobody misses it
}

func (p *process) monitored() string {
	if len(p.cfg.Monitor.Entities) == 0 {
		return "every queue is monitored"
	}
	names := make([]string, 0, len(p.cfg.Monitor.Entities))
	for _, e := range p.cfg.Monitor.Entities {
		names = append(names, e.Queue)
	}
	return "monitored: " + clip(strings.Join(names, ", "))
}
