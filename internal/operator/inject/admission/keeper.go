// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"overdue/internal/listener"
)

// A Keeper makes the certificate of the webhook and keeps it valid, for any number of replicas: in a
// Secret, which they share, and in caBundle of the webhook's configuration. Both objects have to
// exist.
//
// A new certificate takes three steps, in this order: the Secret has it, the API server trusts it,
// it is served. The authority before it stays in caBundle, so a replica that has not seen the new
// one yet serves the old one to a server that still trusts it.
type Keeper struct {
	Cluster       Cluster
	Secret        string   // its name, in the namespace of this pod
	Configuration string   // the name of the MutatingWebhookConfiguration
	Names         []string // host names of the certificate
	Log           *zap.Logger

	mu   sync.Mutex
	pair *tls.Certificate // nil: there is none yet
	err  error            // of the last pass
}

const (
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = 30 * 24 * time.Hour
	// passEvery is how often everything is checked: somebody may have applied the configuration
	// without its caBundle, or another replica has made a new certificate.
	passEvery             = time.Minute
	leastPause, mostPause = 500 * time.Millisecond, 30 * time.Second // after a pass that failed
)

// errNoPass is the state before the first pass.
var errNoPass = errors.New("the certificate has not been looked for yet")

// Run keeps the certificate until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	pause := leastPause
	for {
		err := k.Pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := passEvery
		if err != nil {
			k.Log.Warn("certificate of the webhook not checked", zap.Error(err))
			wait, pause = pause, min(2*pause, mostPause)
		} else {
			pause = leastPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Pass takes the three steps, as far as they are not done.
func (k *Keeper) Pass(ctx context.Context) error {
	pair, err := k.pass(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.pair = pair
	}
	return err
}

func (k *Keeper) pass(ctx context.Context) (*tls.Certificate, error) {
	namespace, err := k.Cluster.Namespace()
	if err != nil {
		return nil, err
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(k.Secret)
	var s secret
	if err := k.Cluster.call(ctx, http.MethodGet, path, "", nil, &s); err != nil {
		return nil, fmt.Errorf("read the Secret: %w", err)
	}
	pair, reason := s.usable(k.Names, time.Now())
	if reason != nil {
		if err := s.renew(k.Names, time.Now()); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		change := map[string]any{"metadata": map[string]string{"resourceVersion": s.Metadata.ResourceVersion}, "data": s.Data}
		if err := k.Cluster.call(ctx, http.MethodPatch, path, "application/merge-patch+json", change, nil); err != nil {
			return nil, fmt.Errorf("write the Secret: %w", err) // another replica may have been faster: the next pass reads its own
		}
		k.Log.Info("certificate made", zap.String("secret", k.Secret), zap.NamedError("reason", reason))
		if pair, reason = s.usable(k.Names, time.Now()); reason != nil {
			return nil, fmt.Errorf("the certificate that was made %w", reason)
		}
	}
	if err := k.trust(ctx, s.Data[authoritiesKey]); err != nil {
		return nil, err
	}
	return pair, nil
}

// trust makes the API server trust the authorities.
func (k *Keeper) trust(ctx context.Context, authorities []byte) error {
	path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + url.PathEscape(k.Configuration)
	var c struct {
		Webhooks []struct {
			Name         string `json:"name"`
			ClientConfig struct {
				CABundle []byte `json:"caBundle"`
			} `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := k.Cluster.call(ctx, http.MethodGet, path, "", nil, &c); err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var changes []operation
	for i, w := range c.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, authorities) {
			at := fmt.Sprintf("/webhooks/%d/", i)
			changes = append(changes, operation{"test", at + "name", w.Name}, operation{"add", at + "clientConfig/caBundle", authorities})
		}
	}
	if len(c.Webhooks) == 0 {
		return fmt.Errorf("the configuration %s has no webhooks", k.Configuration)
	}
	if len(changes) == 0 {
		return nil
	}
	if err := k.Cluster.call(ctx, http.MethodPatch, path, "application/json-patch+json", changes, nil); err != nil {
		return fmt.Errorf("write the webhook's configuration: %w", err)
	}
	k.Log.Info("caBundle written", zap.String("configuration", k.Configuration))
	return nil
}

// Ready says why there is no certificate yet; nil: there is one.
func (k *Keeper) Ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.pair != nil:
		return nil
	case k.err != nil:
		return k.err
	}
	return errNoPass
}

// GetCertificate is for a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if err := k.Ready(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pair, nil
}

// Keys of the Secret.
const (
	certificateKey = "tls.crt"
	privateKey     = "tls.key"
	authoritiesKey = "ca.crt" // the one of the certificate first, and the one before it
)

// A secret is the Secret, as far as it is used here.
type secret struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

// usable returns the certificate, or why another has to be made.
func (s *secret) usable(names []string, now time.Time) (*tls.Certificate, error) {
	if len(s.Data[certificateKey]) == 0 {
		return nil, errors.New("is not there yet")
	}
	pair, err := tls.X509KeyPair(s.Data[certificateKey], s.Data[privateKey])
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Data[authoritiesKey])
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			return nil, fmt.Errorf("is not valid: %w", err)
		}
	}
	if left := pair.Leaf.NotAfter.Sub(now); left < renewBefore {
		return nil, fmt.Errorf("ends in %s", left.Round(time.Hour))
	}
	return &pair, nil
}

// renew puts a new certificate into s, and keeps the latest authority beside the new one.
func (s *secret) renew(names []string, now time.Time) error {
	made, err := listener.MakeBundle(names, now)
	if err != nil {
		return err
	}
	authorities := made.Authority
	if before, _ := pem.Decode(s.Data[authoritiesKey]); before != nil && before.Type == "CERTIFICATE" {
		if c, err := x509.ParseCertificate(before.Bytes); err == nil && now.Before(c.NotAfter) {
			authorities = append(authorities, pem.EncodeToMemory(&pem.Block{Type: before.Type, Bytes: before.Bytes})...)
		}
	}
	s.Data = map[string][]byte{certificateKey: made.Certificate, privateKey: made.Key, authoritiesKey: authorities}
	return nil
}
