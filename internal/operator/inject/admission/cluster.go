// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"overdue/internal/escape"
	"overdue/internal/httpclient"
)

// ServiceAccountDir is where a pod finds the token of its service account
// (kubernetes.io/docs/tasks/run-application/access-api-from-pod).
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	callTimeout = 10 * time.Second
	maxAnswer   = 4 << 20  // of the API: a Secret has at most 1 MiB
	maxAccount  = 64 << 10 // a token, or the authorities of the API server
)

// A Cluster is the API of Kubernetes, as a pod reaches it.
type Cluster struct {
	Address string // host and port
	Dir     string // with token, ca.crt and namespace
}

// InCluster is the cluster that this pod runs in. dir "" means ServiceAccountDir.
func InCluster(dir string, getenv func(string) string) (Cluster, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Cluster{}, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod of a cluster")
	}
	if dir == "" {
		dir = ServiceAccountDir
	}
	return Cluster{Address: net.JoinHostPort(host, port), Dir: dir}, nil
}

// Namespace is the namespace of this pod.
func (c Cluster) Namespace() (string, error) {
	name, err := c.file("namespace")
	return strings.TrimSpace(string(name)), err
}

// file reads one of the files that a kubelet renews while the pod runs.
func (c Cluster) file(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(c.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("the pod has no token of its service account (automountServiceAccountToken): %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAccount+1))
	if err == nil && (len(text) == 0 || len(text) > maxAccount) {
		err = fmt.Errorf("%s has %d bytes; 1 to %d are possible", f.Name(), len(text), maxAccount)
	}
	return text, err
}

// errConflict means that somebody else has changed the object since it was read.
var errConflict = errors.New("somebody else has changed it")

// call sends one request to the API and decodes the answer into out. in and out may be nil.
func (c Cluster) call(ctx context.Context, method, path, contentType string, in, out any) error {
	token, err := c.file("token")
	if err != nil {
		return err
	}
	authorities, err := c.file("ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("%s has no certificate", filepath.Join(c.Dir, "ca.crt"))
	}
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "https://"+c.Address+path, &body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	r.Header.Set("Accept", "application/json")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	transport := httpclient.Transport()
	transport.Proxy = nil // the API server is in the cluster
	transport.DisableKeepAlives = true
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	answer, err := httpclient.New(transport, callTimeout).Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	switch {
	case len(text) > maxAnswer:
		return fmt.Errorf("%s %s: the answer has more than %d MiB", method, path, maxAnswer>>20)
	case answer.StatusCode == http.StatusConflict:
		return fmt.Errorf("%s %s: %w", method, path, errConflict)
	case answer.StatusCode/100 != 2:
		return fmt.Errorf("%s %s: %s", method, path, refusal(answer.Status, text))
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// refusal is what a Status of the API says.
func refusal(line string, text []byte) string {
	var s status
	if err := json.Unmarshal(text, &s); err != nil || s.Message == "" {
		return line // no Status: a proxy in between has answered
	}
	return escape.Text(fmt.Sprintf("%s: %.500s", line, s.Message))
}
