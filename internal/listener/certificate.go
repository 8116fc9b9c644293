// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	// NotAfter is the end of its validity. Reloading the files changes neither Names nor NotAfter.
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
