// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker/queue"
)

// An External namespace is one of which nothing is known but how to reach it: a
// real one, the official emulator, or an `overdue broker` somewhere. It has to
// have a key with all rights, and the suite makes and deletes its own entities.
type External struct {
	// ConnectionString is that of the namespace, with Manage.
	ConnectionString string
	// AdminURL is where the administration API is, if not at https://<endpoint>:
	// http://localhost:5300 for the official emulator.
	AdminURL string
	// REST says that the namespace has the REST runtime API, at the same place. The
	// emulator has not.
	REST bool
	// Wait lets time pass; nil means to wait.
	Wait func(time.Duration)
	// LockDuration of the queues; 0 means five seconds, the least that the service
	// allows.
	LockDuration time.Duration
}

// Target returns the namespace as [Run] wants it.
func (x *External) Target(t *testing.T) *Target {
	t.Helper()
	host, plain, err := endpointOf(x.ConnectionString)
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	base := "https://" + host
	if x.AdminURL != "" {
		base = x.AdminURL
	}
	at, err := url.Parse(base)
	if err != nil {
		t.Fatalf("brokertest: AdminURL: %v", err)
	}
	client, err := admin.NewClientFromConnectionString(x.ConnectionString, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: elsewhere{at}},
	})
	if err != nil {
		t.Fatalf("brokertest: administration client: %v", err)
	}
	target := &Target{
		ConnectionString: x.ConnectionString,
		ClientOptions:    &azservicebus.ClientOptions{},
		Dial:             dialer(host, plain),
		LockDuration:     x.LockDuration,
		Secured:          true,
		Strict:           true,
		Expiry:           queue.Lazy,
		Wait:             x.Wait,
	}
	if target.LockDuration == 0 {
		target.LockDuration = 5 * time.Second
	}
	if target.Wait == nil {
		target.Wait = time.Sleep
	}
	if x.REST {
		target.HTTP = elsewhere{at}.Do
	}
	entities := &externalEntities{client}
	target.CreateQueue = entities.createQueue
	target.UpdateQueue = entities.updateQueue
	target.DeleteQueue = entities.deleteQueue
	target.CreateTopic = entities.createTopic
	target.CreateSubscription = entities.createSubscription
	return target
}

// endpointOf reads a connection string as far as the suite needs it.
func endpointOf(cs string) (host string, plain bool, err error) {
	for part := range strings.SplitSeq(cs, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case strings.EqualFold(name, "Endpoint"):
			u, err := url.Parse(value)
			if err != nil || u.Host == "" {
				return "", false, fmt.Errorf("no endpoint in the connection string")
			}
			host = u.Host
		case strings.EqualFold(name, "UseDevelopmentEmulator"):
			plain = strings.EqualFold(value, "true")
		}
	}
	if host == "" {
		return "", false, fmt.Errorf("no endpoint in the connection string")
	}
	return host, plain, nil
}

// dialer opens connections on which AMQP can begin.
func dialer(host string, plain bool) func(context.Context) (net.Conn, error) {
	withPort := func(port string) string {
		if _, _, err := net.SplitHostPort(host); err == nil {
			return host
		}
		return net.JoinHostPort(host, port)
	}
	return func(ctx context.Context) (net.Conn, error) {
		if plain {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", withPort("5672"))
		}
		var d tls.Dialer
		return d.DialContext(ctx, "tcp", withPort("5671"))
	}
}

// elsewhere sends what a client means for https://<endpoint> to another place.
type elsewhere struct{ to *url.URL }

func (e elsewhere) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = e.to.Scheme, e.to.Host
	return http.DefaultClient.Do(r)
}

// externalNames makes names that differ between runs.
var externalNames atomic.Int64

func externalName(kind string) string {
	return fmt.Sprintf("overdue-%s-%x-%d", kind, time.Now().Unix(), externalNames.Add(1))
}

// RealTime runs f as it is, in parallel with the other cases: they have entities of their
// own, and much of their time is waiting.
func RealTime(t *testing.T, f func(*testing.T)) {
	t.Parallel()
	f(t)
}
