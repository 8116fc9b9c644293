// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// certificateLife is the validity of a self-made certificate. Some clients refuse longer ones.
const certificateLife = 825 * 24 * time.Hour

// certificateNames checks names and adds those of every certificate, sorted and in lower case.
func certificateNames(further []string) ([]string, error) {
	names := []string{"localhost", "*.localhost", "127.0.0.1", "::1"}
	for _, name := range further {
		if ip := net.ParseIP(name); ip != nil {
			name = ip.String()
		} else if name = strings.ToLower(strings.TrimSuffix(name, ".")); !isHostName(name) {
			return nil, fmt.Errorf("listener: %.260q is not a host name or address", name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// isHostName reports whether name may stand in a certificate; its first label
// may be an asterisk.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for i, label := range strings.Split(name, ".") {
		if i == 0 && label == "*" {
			continue
		}
		ok := label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
		for _, c := range []byte(label) {
			// Names of Compose services may have underscores, host names may not.
			ok = ok && (c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
		}
		if !ok {
			return false
		}
	}
	return true
}

// newBundle makes an authority and a certificate for names: certificate, authority and key, in
// one PEM file.
func newBundle(names []string, now time.Time) ([]byte, error) {
	b, err := MakeBundle(names, now)
	return slices.Concat(b.Certificate, b.Authority, b.Key), err
}

// A Bundle is a certificate, its key and the authority that clients have to trust, each in PEM.
type Bundle struct{ Certificate, Key, Authority []byte }

// MakeBundle makes a certificate for names. Its authority signs nothing else, because its key is
// discarded.
func MakeBundle(names []string, now time.Time) (b Bundle, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return b, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return b, err
	}
	// The clock of a client may be slow.
	from, to := now.Add(-time.Hour), now.Add(certificateLife)
	authority := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Overdue"}, CommonName: "Overdue local authority of " + now.UTC().Format(time.DateTime)},
		NotBefore:             from,
		NotAfter:              to,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	leaf := &x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"Overdue"}, CommonName: "localhost"},
		NotBefore:   from,
		NotAfter:    to,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	if err != nil {
		return b, err
	}
	// A signed certificate names the authority by the authority's own subject.
	if authority, err = x509.ParseCertificate(ca); err != nil {
		return b, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), caKey)
	if err != nil {
		return b, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return b, err
	}
	certificate := func(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return Bundle{Certificate: certificate(der), Authority: certificate(ca), Key: private}, nil
}
