// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Certificate says in a sentence what is wrong with the certificate of a server, and what to do. It
// returns "" for errors that are not about that: no firewall and no address has to do with these.
func Certificate(err error) (says, fix string) {
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return expired(invalid.Cert)
	}
	if name := (x509.HostnameError{}); errors.As(err, &name) {
		return fmt.Sprintf("its certificate is for %s, and not for %s", nameOf(name.Certificate), name.Host),
			"use the name that the certificate has, or have one made for this name"
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) && unknown.Cert != nil {
		return fmt.Sprintf("its certificate comes from an authority that this machine does not trust (%s)", unknown.Cert.Issuer),
			"if the authority is yours, add its certificate to those of this machine (SSL_CERT_FILE), or name it in the authorityFile of the setting; otherwise something on the way shows a certificate of its own"
	}
	return "", ""
}

// expired is about a certificate at a time when it does not hold.
func expired(c *x509.Certificate) (says, fix string) {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	now, name := at(time.Now()), nameOf(c)
	if time.Now().Before(c.NotBefore) {
		return fmt.Sprintf("its certificate for %s holds from %s on, and the clock of this machine says %s", name, at(c.NotBefore), now),
			"set the clock of this machine, if it is wrong (timedatectl set-ntp true); otherwise whoever runs the server has to replace the certificate"
	}
	fix = fmt.Sprintf("whoever runs the server has to renew the certificate of %s, which %s issued", name, c.Issuer)
	if strings.HasSuffix(name, ".windows.net") {
		fix = "Microsoft renews this certificate in time: look for a proxy or firewall on the way that shows one of its own, which its owner has to renew"
	}
	return fmt.Sprintf("its certificate for %s ended at %s; the clock of this machine says %s", name, at(c.NotAfter), now), fix + "; or the clock of this machine is wrong"
}

func nameOf(c *x509.Certificate) string {
	return cmp.Or(strings.Join(c.DNSNames[:min(len(c.DNSNames), 3)], ", "), c.Subject.CommonName, "no name")
}
