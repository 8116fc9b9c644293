// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"overdue/internal/config"
	"overdue/internal/listener"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// banner prints the addresses of all listeners for the person who typed the command. It goes to stdout; the log
// goes to stderr. Each connection string is a line of its own, from its first character:
// programs that start Overdue wait for the first line that begins with Endpoint=.
func (p *Process) banner(w io.Writer) {
	var b strings.Builder
	row := func(what, where, note string) {
		head := fmt.Sprintf("  %-16s %-28s ", what, where)
		b.WriteString(strings.TrimRight(head+terminal.Wrap(note, bannerWidth, len(head)), " ") + "\n")
	}
	fmt.Fprintf(&b, "overdue %s %s\n\n", p.role.Name, version.String())
	if p.broker != nil {
		b.WriteString(origins(p.cfg))
	}
	if p.endpoints.proxy != nil {
		p.endpoints.rows(row)
	}
	row("admin", "http://"+p.servers.addr, "/readyz, /metrics")
	if p.servers.probesAddr != "" {
		row("probes", "http://"+p.servers.probesAddr, "the same, for other machines")
	}
	if p.broker != nil {
		for i, addr := range p.broker.addrs {
			row("embedded broker", "amqp://"+addr, p.broker.note(i, p.role.Monitor))
		}
		row("messages", p.broker.page(), "in a browser")
	}
	if p.namespace != nil && !p.cfg.Embedded() {
		row("namespace", p.namespace.Host, monitorQueuesNote(p.cfg.AllMonitorQueues().Names()))
	}
	if p.endpoints.proxy != nil {
		p.endpoints.banner(&b)
	}
	if p.broker != nil {
		p.broker.banner(&b)
	}
	_, _ = io.WriteString(w, b.String()) // nobody reads it, nobody misses it
}

// bannerWidth is how many columns a line of the banner has at most, unless it is there to be copied.
const bannerWidth = 100

// origins says where the entities of the embedded broker come from, where people might wonder.
func origins(cfg *config.Config) string {
	switch c := &cfg.Broker; {
	case c.AutoCreate:
		return "Queues are made when a client names them. They dead-letter what expires; by default Azure drops it.\n" +
			"All else is as by default in Azure. With --broker-auto-create=false a misspelt name fails.\n\n"
	case c.EmulatorConfig != "":
		return fmt.Sprintf("The entities are those of %s: %s.\n%sA name that is not among them fails.\n\n",
			c.EmulatorSource(), config.Clip(strings.Join(cfg.EntityNames(), ", ")), namespaces(cfg))
	}
	return ""
}

// namespaces says how clients name those of the configuration, if it has several.
func namespaces(cfg *config.Config) string {
	all := cfg.BrokerNamespaces()
	if len(all) == 0 {
		return ""
	}
	var others []string
	for _, n := range all[1:] {
		others = append(others, n.Name)
	}
	how := "SharedAccessKeyName or host"
	if len(cfg.Broker.Keys) > 0 { // their names are theirs
		how = "host"
	}
	return fmt.Sprintf("That is the namespace %s. By their name as %s: %s.\n", cmp.Or(all[0].Name, "without a name"), how, config.Clip(strings.Join(others, ", ")))
}

// note says what an address of the embedded broker is for.
func (b *embedded) note(i int, beside bool) string {
	if i > 0 {
		return "the same"
	}
	note := "AMQP, WebSocket and HTTP"
	if b.certificate != nil {
		note += ", each with and without TLS"
	}
	if beside {
		note += "; what is sent here is not monitored"
	}
	return note
}

// banner prints the connection strings to paste into an app.
func (b *embedded) banner(w *strings.Builder) {
	if dir := b.cfg.Broker.Directory; dir != "" {
		fmt.Fprintf(w, "\nEntities and messages of the embedded broker are kept in %s.\n", dir)
	} else {
		w.WriteString("\nMessages of the embedded broker are in memory: lost at stop.\n")
	}
	switch c := &b.cfg.Broker; {
	case c.Isolate && len(c.Keys) > 0: // their names are theirs
		w.WriteString("The first label of a host name, such as t1.localhost, is a namespace of its own.\n")
	case c.Isolate:
		w.WriteString("Every SharedAccessKeyName but " + config.AnyKeyName + " is a namespace of its own.\n")
	}
	fmt.Fprintf(w, "\nConnection string of the embedded broker, to paste into an app:\n%s\n", b.shownConnectionString())
	if b.certificate != nil {
		fmt.Fprintf(w, "and over TLS:\n%s\n", b.shownSecureConnectionString())
	}
	w.WriteString(trust(b.certificate))
}

// trust says how to make clients trust a certificate.
func trust(c *listener.Certificate) string {
	switch {
	case c == nil:
		return ""
	case c.CAFile == "":
		return fmt.Sprintf("\nTLS: the certificate %s, for %s.\n", c.CertFile, strings.Join(c.Names, ", "))
	}
	return fmt.Sprintf("\nTLS: a certificate of Overdue's own, for %s.\n"+
		"Clients trust it by its authority, %s:\n"+
		"  Go      export SSL_CERT_FILE=%[2]s\n"+
		"  Node    export NODE_EXTRA_CA_CERTS=%[2]s\n"+
		"  Python  export SSL_CERT_FILE=%[2]s REQUESTS_CA_BUNDLE=%[2]s\n"+
		"  Java    keytool -importcert -noprompt -alias overdue -file %[2]s -keystore trust.p12 -storepass changeit\n"+
		"          and -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit\n",
		strings.Join(c.Names, ", "), c.CAFile)
}

// monitored names the monitored entities.
func monitored(c *config.Config) string {
	if len(c.Monitor.Entities) == 0 {
		return "everything is monitored"
	}
	return "monitored: " + config.Clip(strings.Join(c.MonitoredNames(), ", "))
}

// monitorQueuesNote names the monitor queues.
func monitorQueuesNote(names []string) string {
	if len(names) == 1 {
		return "monitor queue " + names[0]
	}
	return fmt.Sprintf("monitor queues %s to %s", names[0], names[len(names)-1])
}
