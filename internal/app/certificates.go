// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/config"
	"overdue/internal/listener"
)

// registerCertificates shows when the certificates end that this process serves, and those by which
// it knows whom to trust.
func (p *Process) registerCertificates() {
	p.registry.MustRegister(&gaugeReader{
		desc: prometheus.NewDesc("overdue_certificate_expiry_timestamp_seconds",
			"When a certificate ends, in seconds since 1970. It is served (use listen.tls, broker.tls, inject), or trusted: the authorities of redis and of a sink, "+
				"the latest of a file, and what the namespace showed at the latest connection.",
			[]string{"use"}, prometheus.Labels{namespaceLabel: namespaceOf(p.cfg)}),
		read: func(show func(value float64, labels ...string)) {
			for use, end := range p.certificateEnds() {
				if !end.IsZero() {
					show(float64(end.Unix()), use)
				}
			}
		},
	})
}

// certificateEnds are the ends of certificates by their use. An end is zero where there is none.
func (p *Process) certificateEnds() map[string]time.Time {
	c := p.current()
	ends := map[string]time.Time{
		"listen.tls": endOf(p.endpoints.certificate),
		"redis":      lastEnd(c.RedisAuthority),
	}
	if p.broker != nil {
		ends["broker.tls"] = endOf(p.broker.certificate)
	}
	if p.namespace != nil {
		ends["namespace"] = p.namespace.CertificateEnd()
	}
	for i := range c.Alerts {
		if s := serverOf(&c.Alerts[i]); s != nil {
			ends["sink "+c.Alerts[i].Name] = lastEnd(s.Authority)
		}
	}
	return ends
}

// endOf is zero without a certificate.
func endOf(c *listener.Certificate) time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.End()
}

// serverOf is the part of a sink that has an authority; nil for sinks without one.
func serverOf(a *config.Alert) *config.Server {
	switch {
	case a.Webhook != nil:
		return &a.Webhook.Server
	case a.Alertmanager != nil:
		return &a.Alertmanager.Server
	}
	return nil
}

// lastEnd is when the last of some authorities ends: from then on nobody is trusted. A file that has
// a new one beside the old one needs nobody's attention.
func lastEnd(text string) (last time.Time) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return last
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
}
