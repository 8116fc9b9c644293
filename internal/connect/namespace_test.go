// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sas"
)

const (
	keyName = "app"
	key     = "c2VjcmV0c2VjcmV0"
)

// certificate is for 127.0.0.1. The tests of this package trust it.
var certificate tls.Certificate

// TestMain lets the machine trust the certificate before anything reads the roots, which happens once.
func TestMain(m *testing.M) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	certificate = s.TLS.Certificates[0]
	s.Close()
	dir, err := os.MkdirTemp("", "connect")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	roots := filepath.Join(dir, "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := errors.Join(os.WriteFile(roots, text, 0o600), os.Setenv("SSL_CERT_FILE", roots)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// A connection string that the check takes, both clients of the SDK take, however it was written.
func TestWhatTheCheckTakesTheSDKTakes(t *testing.T) {
	for _, text := range []string{
		"Endpoint=sb://localhost:24999/; SharedAccessKeyName=R; SharedAccessKey=abc=; UseDevelopmentEmulator=true",
		"Endpoint = sb://localhost:24999/;SharedAccessKeyName = R;SharedAccessKey = abc=;UseDevelopmentEmulator=true",
		"Endpoint=SB://localhost:24999/;SharedAccessKeyName=R;SharedAccessKey=abc=;UseDevelopmentEmulator=true",
		"endpoint=sb://LOCALHOST;sharedaccesskeyname=R;sharedaccesskey=abc=;usedevelopmentemulator=T;",
		";;Endpoint=sb://[::1]:5673//;SharedAccessKeyName=R;SharedAccessKey=a=b=c;UseDevelopmentEmulator=1;;",
		"Endpoint=sb://a.b;EntityPath=;SharedAccessKeyName=R;SharedAccessKey=abc=;TransportType=Amqp;UseDevelopmentEmulator=false",
		"SharedAccessSignature = SharedAccessSignature sr=x&sig=y&se=1&skn=z ; Endpoint = sb://a.b/",
	} {
		n, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		client, err := n.SDK()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := n.Administration(&entities.Admin{}); err != nil {
			t.Errorf("%s: administration: %v", text, err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// serveBroker serves a namespace with the queue orders on a port that takes AMQP and HTTP, with TLS and without.
func serveBroker(t *testing.T) (b *broker.Broker, addr string) {
	t.Helper()
	b, err := broker.New(broker.Config{
		Queues: []broker.QueueConfig{{Name: "orders", LockDuration: 30 * time.Second}},
		Keys:   []broker.AuthorizationRule{{KeyName: keyName, PrimaryKey: key, Send: true, Listen: true, Manage: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Config{Broker: b, TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}})
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return b, ln.Addr().String()
}

func parse(t *testing.T, text string) *Namespace {
	t.Helper()
	n, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// overTLS is a connection string that has no flag of the emulator.
func overTLS(addr, proof string) string { return "Endpoint=sb://" + addr + "/;" + proof }

func TestEveryConnectionStringServesBothClients(t *testing.T) {
	b, addr := serveBroker(t)
	sent := 0
	signature := sas.Make(keyName, key, "sb://"+addr+"/", time.Now().Add(time.Hour))
	for name, text := range map[string]string{
		"key":                    overTLS(addr, "SharedAccessKeyName="+keyName+";SharedAccessKey="+key),
		"key, without TLS":       config.ConnectionString(addr, keyName, key),
		"signature":              overTLS(addr, "SharedAccessSignature="+signature),
		"signature, without TLS": overTLS(addr, "SharedAccessSignature="+signature+";UseDevelopmentEmulator=true"),
	} {
		t.Run(name, func(t *testing.T) {
			n := parse(t, text)
			client, err := n.SDK()
			if err != nil {
				t.Fatal(err)
			}
			links, tokens, err := n.Links()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close(context.Background())
			defer links.Close()
			sender, err := client.NewSender("orders", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(name)}, nil); err != nil {
				t.Fatalf("send with the SDK: %v", err)
			}
			receiver, err := links.Receiver(t.Context(), "orders")
			if err != nil {
				t.Fatalf("receive over a link: %v", err)
			}
			defer receiver.Close(context.Background())
			q, _ := b.Queue("orders")
			if sent++; q.Counts().Active != sent {
				t.Errorf("%d messages on the queue, want the %d that were sent", q.Counts().Active, sent)
			}
			if token, err := tokens.Token(t.Context(), "sb://"+addr+"/orders"); err != nil || !strings.HasPrefix(token.Value, "SharedAccessSignature ") {
				t.Errorf("token = %.30q, %v, want a signature", token.Value, err)
			}
		})
	}
}

func TestAWrongKeyIsRefusedByTheNamespace(t *testing.T) {
	_, addr := serveBroker(t)
	n := parse(t, config.ConnectionString(addr, keyName, "another-key-of-16"))
	links, _, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	if err := links.Send(t.Context(), "orders", nil); !link.Unauthorized(err) {
		t.Errorf("send with a wrong key = %v, want that it is unauthorized", err)
	}
}

func TestTheSDKAdministersWhereTheAPIHasAnswered(t *testing.T) {
	b, addr := serveBroker(t)
	for name, text := range map[string]string{
		"over-tls":    overTLS(addr, "SharedAccessKeyName="+keyName+";SharedAccessKey="+key),
		"without-tls": config.ConnectionString(addr, keyName, key),
	} {
		t.Run(name, func(t *testing.T) {
			n := parse(t, text)
			c, err := config.Load("", func(string) string { return "" }, nil)
			if err != nil {
				t.Fatal(err)
			}
			links, tokens, err := n.Links()
			if err != nil {
				t.Fatal(err)
			}
			defer links.Close()
			api, err := AdminAPI(c, n, tokens)
			if err != nil {
				t.Fatal(err)
			}
			info, err := api.Read(t.Context(), "orders")
			if err != nil || info.Kind != entities.Queue {
				t.Fatalf("read orders = %+v, %v, want a queue", info, err)
			}
			client, err := n.Administration(api)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CreateQueue(t.Context(), name, &admin.CreateQueueOptions{}); err != nil {
				t.Fatalf("create a queue: %v", err)
			}
			if _, ok := b.Queue(name); !ok {
				t.Errorf("the namespace has no queue %s", name)
			}
		})
	}
}

// No machine has the name, so a client that dialed at once would fail.
func TestAMachinesIdentityConnectsToNothingBeforeItIsUsed(t *testing.T) {
	n := parse(t, "contoso.invalid")
	links, tokens, err := n.Links()
	if err != nil {
		t.Fatal(err)
	}
	if tokens == nil || links == nil {
		t.Errorf("tokens, links = %v, %v, want both", tokens, links)
	}
	if _, err := n.Administration(&entities.Admin{Endpoints: n.adminEndpoints()}); err != nil {
		t.Errorf("administration: %v", err)
	}
	if err := links.Close(); err != nil {
		t.Errorf("close what was never used: %v", err)
	}
}

func TestTheNamespaceIsParsedWithoutShowingItsSecret(t *testing.T) {
	if _, err := Parse("Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=top-secret;EntityPath=orders"); err == nil || strings.Contains(err.Error(), "top-secret") {
		t.Errorf("error = %v, want one without the key", err)
	}
}

// The SDK may quote what it cannot read.
func TestAConnectionStringThatTheSDKRefusesIsNotQuoted(t *testing.T) {
	n := parse(t, "Endpoint=sb://contoso.invalid:5671;SharedAccessKeyName=k;SharedAccessKey=top-secret")
	n.ConnectionString = "SharedAccessKey=top-secret" // which the SDK refuses
	_, err := n.SDK()
	_, adminErr := n.Administration(&entities.Admin{})
	for _, err := range []error{err, adminErr} {
		if err == nil || !strings.Contains(err.Error(), "contoso.invalid") || strings.Contains(err.Error(), "top-secret") {
			t.Errorf("error = %v, want one with the host and without the key", err)
		}
	}
}

func TestSignInFailedKnowsTheErrorsOfTheIdentity(t *testing.T) {
	if !SignInFailed(fmt.Errorf("orders: %w", &azidentity.AuthenticationFailedError{})) {
		t.Error("a wrapped AuthenticationFailedError is not seen as one")
	}
	if SignInFailed(errors.New("no route to host")) || SignInFailed(nil) {
		t.Error("other errors count as a failed sign-in")
	}
}

func TestACertificateForAnotherNameEndsTheConnection(t *testing.T) {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ended := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, nc) // until the client closes
		}
		ended <- err
	}()
	n := parse(t, overTLS("127.0.0.1", "SharedAccessKeyName=k;SharedAccessKey=x"))
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	n.DialAddress = net.JoinHostPort("localhost", port) // the certificate is for 127.0.0.1 and example.com
	_, err = n.Open(t.Context())
	if bad := (x509.HostnameError{}); !errors.As(err, &bad) {
		t.Errorf("open = %v, want an error about the name", err)
	}
	if got := n.CertificateEnd(); !got.Equal(certificate.Leaf.NotAfter) {
		t.Errorf("CertificateEnd of a refused one = %v, want %v", got, certificate.Leaf.NotAfter)
	}
	<-ended
}

func TestANamespaceThatTakesConnectionsAndIsSilentSaysSo(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			defer nc.Close()
			_, _ = nc.Read(make([]byte, 1)) // the client has begun
		}
		cancel()
		<-t.Context().Done()
	}()
	n := parse(t, overTLS(ln.Addr().String(), "SharedAccessKeyName=k;SharedAccessKey=x"))
	if _, err = n.Open(ctx); err == nil || err.Error() != "no answer to the TLS handshake: context canceled" {
		t.Errorf("Open = %v, want that nothing answers, and nothing of a connection that is closed", err)
	}
}

func TestHTTPIsAtTheGivenPortOrThatOfHTTPS(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel() // it says where it would connect, and does not
	const proof = "SharedAccessKeyName=k;SharedAccessKey=x"
	for text, want := range map[string]string{
		overTLS("127.0.0.1", proof):                                  "127.0.0.1:443",
		overTLS("127.0.0.1:5671", proof):                             "127.0.0.1:5671",
		overTLS("127.0.0.1", proof+";UseDevelopmentEmulator=true"):   "127.0.0.1:5672",
		overTLS("127.0.0.1:1", proof+";UseDevelopmentEmulator=true"): "127.0.0.1:1",
	} {
		_, err := parse(t, text).OpenHTTP(gone)
		if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Addr == nil || op.Addr.String() != want {
			t.Errorf("%s: OpenHTTP = %v, want a dial of %s", text, err, want)
		}
	}
}

func TestOpenHTTPReachesTheNamespace(t *testing.T) {
	_, addr := serveBroker(t)
	n := parse(t, overTLS(addr, "SharedAccessKeyName=k;SharedAccessKey=x"))
	client := &http.Client{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return n.OpenHTTP(ctx) }}}
	resp, err := client.Get("https://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET / = %s, want 200", resp.Status)
	}
	if got := n.CertificateEnd(); !got.Equal(certificate.Leaf.NotAfter) {
		t.Errorf("CertificateEnd = %v, want %v", got, certificate.Leaf.NotAfter)
	}
	client.CloseIdleConnections()
}
