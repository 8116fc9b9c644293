// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Certificate configures TLS.
type Certificate struct {
	// TLS is for Config.TLS.
	TLS *tls.Config
	// CAFile is the authority that clients have to trust, in PEM, for SSL_CERT_FILE,
	// NODE_EXTRA_CA_CERTS and REQUESTS_CA_BUNDLE. Empty for a configured certificate.
	CAFile string
	// CertFile and KeyFile hold the certificate and its key. They may be one file.
	CertFile, KeyFile string
	// Names are the host names and addresses of the certificate.
	Names []string
	// NotAfter is the end of its validity. Reloading the files changes neither Names nor NotAfter;
	// End follows.
	NotAfter time.Time
	// Made reports whether this call made the certificate. Clients then need the new authority.
	Made bool
}

func newCertificate(pair tls.Certificate, certFile, keyFile string) *Certificate {
	names := slices.Clone(pair.Leaf.DNSNames)
	for _, ip := range pair.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return &Certificate{
		// HTTP/1.1 only: custom properties are header names, which HTTP/2 sends in lower case.
		TLS: &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			DynamicRecordSizingDisabled: true, // records that grow make a peer of Go's double its buffer again and again
		},
		CertFile: certFile, KeyFile: keyFile,
		Names: names, NotAfter: pair.Leaf.NotAfter,
	}
}

// End returns the end of validity of the certificate that new clients get, reloaded ones included.
func (c *Certificate) End() time.Time { return endOf(c.TLS) }

// endOf returns the end of validity of what a configuration serves.
func endOf(c *tls.Config) time.Time {
	if c.GetCertificate == nil {
		return c.Certificates[0].Leaf.NotAfter
	}
	pair, err := c.GetCertificate(nil)
	if err != nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// Files of a self-made certificate.
const (
	bundleFile = "localhost.pem" // certificate, key, authority
	caFile     = "ca.pem"        // the authority again, for those who are to trust it
)

// renewBefore is how long before its end a self-made certificate is replaced.
const renewBefore = 30 * 24 * time.Hour

// DefaultCertificateDir is where SelfMade keeps certificates: a directory in the user's
// cache. A relative XDG_CACHE_HOME counts from the working directory.
func DefaultCertificateDir() (string, error) {
	cache, err := os.UserCacheDir()
	if relative := os.Getenv("XDG_CACHE_HOME"); err != nil && relative != "" {
		cache, err = filepath.Abs(relative)
	}
	if err != nil {
		return "", fmt.Errorf("listener: no directory for the certificate: %w", err)
	}
	return filepath.Join(cache, "overdue", "tls"), nil
}

// SelfMade returns a certificate for this machine's own names and for the given host names
// or addresses. It keeps the certificate in dir, "" for DefaultCertificateDir, and replaces
// it when it lacks a name or expires soon.
//
// Its authority signs nothing else, because SelfMade discards the authority's key. Several
// processes may share dir; those that start at once agree on one certificate.
func SelfMade(dir string, names ...string) (*Certificate, error) {
	if dir == "" {
		var err error
		if dir, err = DefaultCertificateDir(); err != nil {
			return nil, err
		}
	}
	names, err := certificateNames(names)
	if err != nil {
		return nil, err
	}
	c, err := loadSelfMade(dir, names)
	if err == nil {
		return c, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStale) {
		return nil, fmt.Errorf("listener: self-made certificate: %w", err)
	}
	if err := makeSelfMade(dir, names, errors.Is(err, errStale)); err != nil {
		return nil, fmt.Errorf("listener: make a certificate: %w", err)
	}
	if c, err = loadSelfMade(dir, names); err != nil {
		return nil, fmt.Errorf("listener: self-made certificate: %w", err)
	}
	c.Made = true
	return c, nil
}

// errStale means that the files have to be replaced.
var errStale = errors.New("is not for these names or this time")

// loadSelfMade reads the bundle of makeSelfMade and restores the authority's file from it.
func loadSelfMade(dir string, names []string) (*Certificate, error) {
	file := filepath.Join(dir, bundleFile)
	bundle, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(bundle, bundle)
	if err != nil {
		return nil, fmt.Errorf("%s %w: %w", file, errStale, err)
	}
	if len(pair.Certificate) != 2 {
		return nil, fmt.Errorf("%s %w: its number of certificates is %d", file, errStale, len(pair.Certificate))
	}
	if time.Until(pair.Leaf.NotAfter) < renewBefore || time.Now().Before(pair.Leaf.NotBefore) {
		return nil, fmt.Errorf("%s %w", file, errStale)
	}
	for _, name := range names {
		if !slices.Contains(pair.Leaf.DNSNames, name) && !hasIP(pair.Leaf, name) {
			return nil, fmt.Errorf("%s %w: no %s", file, errStale, name)
		}
	}
	c := newCertificate(pair, file, file)
	c.CAFile = filepath.Join(dir, caFile)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[1]})
	if was, err := os.ReadFile(c.CAFile); err != nil || !bytes.Equal(was, ca) {
		if err := replaceFile(c.CAFile, ca, 0o644); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func hasIP(c *x509.Certificate, name string) bool {
	for _, ip := range c.IPAddresses {
		if ip.String() == name {
			return true
		}
	}
	return false
}

// makeSelfMade writes a new bundle to dir. If another process was faster, its bundle stays
// unless it is known to be stale.
func makeSelfMade(dir string, names []string, stale bool) error {
	bundle, err := newBundle(names, time.Now())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // apps of other users read the authority there
		return err
	}
	file := filepath.Join(dir, bundleFile)
	if stale {
		return replaceFile(file, bundle, 0o600)
	}
	temp, err := writeTemp(file, bundle, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp) // it is a second name by then, or of no use
	if err := os.Link(temp, file); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return os.Rename(temp, file) // a file system without links
}

// replaceFile replaces a file atomically.
func replaceFile(file string, content []byte, mode fs.FileMode) error {
	temp, err := writeTemp(file, content, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// writeTemp writes content to a new file beside file, and returns its name.
func writeTemp(file string, content []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// LoadCertificate reads a certificate and its key, both in PEM. It reads them again when a
// client connects after the files have changed, so that a mounted secret can rotate. Invalid
// files, such as a certificate without its new key, change nothing. changed, which may be
// nil, gets each error and each success once.
func LoadCertificate(certFile, keyFile string, changed func(error)) (*Certificate, error) {
	if changed == nil {
		changed = func(error) {}
	}
	f := &certificateFiles{certFile: certFile, keyFile: keyFile, changed: changed}
	pair, err := f.load()
	if err != nil {
		return nil, err
	}
	c := newCertificate(*pair, certFile, keyFile)
	c.TLS.Certificates = nil
	c.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current(), nil }
	return c, nil
}

// certificateFiles are the latest valid certificate and its key.
type certificateFiles struct {
	certFile, keyFile string
	changed           func(error)

	mu   sync.Mutex
	pair *tls.Certificate
	seen [2]version // of the files, when they were last read
}

// A version changes with the file, and also when a symbolic link leads to another file, as in
// a mounted secret.
type version struct {
	time time.Time
	size int64
	file os.FileInfo
}

func (v version) equal(w version) bool {
	return v.time.Equal(w.time) && v.size == w.size && os.SameFile(v.file, w.file)
}

// versions returns the current versions of the files.
func (f *certificateFiles) versions() (now [2]version, err error) {
	for i, name := range [...]string{f.certFile, f.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return now, err
		}
		now[i] = version{info.ModTime(), info.Size(), info}
	}
	return now, nil
}

// load reads the files. It takes their versions first, so that the next call detects a change
// in between.
func (f *certificateFiles) load() (*tls.Certificate, error) {
	now, err := f.versions()
	if err == nil {
		f.seen = now
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(f.certFile, f.keyFile); err == nil {
			f.pair = &pair
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listener: certificate %s with key %s: %w", f.certFile, f.keyFile, err)
	}
	return f.pair, nil
}

// current returns the certificate for a new client.
func (f *certificateFiles) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.versions()
	if err != nil || now[0].equal(f.seen[0]) && now[1].equal(f.seen[1]) {
		return f.pair // they are being replaced, or have not been
	}
	_, err = f.load()
	f.changed(err)
	return f.pair
}

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
