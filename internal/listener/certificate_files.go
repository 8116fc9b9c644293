// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

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
