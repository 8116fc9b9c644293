// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/servicebus/sas"
)

const keyedEndpoints = `
broker: {autoCreate: true}
listen:
  amqp: 127.0.0.1:0
  http: 127.0.0.1:0
  admin: 127.0.0.1:0
  amqps: 127.0.0.1:0
  keys:
    - {name: app, key: c2VjcmV0c2VjcmV0, send: true, listen: true}
    - {name: sender, key: c2VuZHNlbmRzZW5k, send: true, entity: orders}
`

// startEndpoints starts a process with its certificate in a folder of its own.
func startEndpoints(t *testing.T, text string) *Process {
	t.Helper()
	c, err := loadText(t, text, map[string]string{"OVERDUE_BROKER_LISTEN": "127.0.0.1:0", "OVERDUE_LISTEN_TLS_DIRECTORY": t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckRole(config.RoleRun); err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

// trusts is what a client has to know of the endpoints' certificate.
func trusts(t *testing.T, p *Process) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(p.endpoints.certificate.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s has no certificate", p.endpoints.certificate.CAFile)
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func sdkClient(t *testing.T, connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	t.Helper()
	options.RetryOptions.MaxRetries = -1
	c, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx) // a refusal may have broken it
	})
	return c
}

// exchange sends a message and receives it.
func exchange(t *testing.T, c *azservicebus.Client, queue string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sender, err := c.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	ttl := time.Minute
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("x"), TimeToLive: &ttl}, nil); err != nil {
		return err
	}
	receiver, err := c.NewReceiverForQueue(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, ms[0], nil)
}

// overWebSocket is how a client comes by WebSocket to where it would not find by itself.
func overWebSocket(addr string, trust *tls.Config) func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	return func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		ws, _, err := websocket.Dial(ctx, "wss://"+addr+"/$servicebus/websocket", &websocket.DialOptions{
			Subprotocols: []string{"AMQPWSB10"}, HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: trust}},
		})
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
	}
}

func TestAppsComeThroughTheTLSEndpointWithTheirKey(t *testing.T) {
	p := startEndpoints(t, keyedEndpoints)
	trust, secure := trusts(t, p), p.endpoints.addrs[2]
	with := func(name, key string) string {
		return secureConnectionString(secure, p.endpoints.certificate.Names, name, key)
	}
	for name, c := range map[string]*azservicebus.Client{
		"AMQP over TLS":                        sdkClient(t, with("app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{TLSConfig: trust}),
		"AMQP over TLS at the first endpoint":  sdkClient(t, secureConnectionString(p.AMQPAddr(), p.endpoints.certificate.Names, "app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{TLSConfig: trust}),
		"AMQP over WebSocket":                  sdkClient(t, with("app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{NewWebSocketConn: overWebSocket(secure, trust)}),
		"AMQP without TLS, on loopback":        sdkClient(t, config.ConnectionString(p.AMQPAddr(), "app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{}),
		"AMQP without TLS, the other endpoint": sdkClient(t, config.ConnectionString(p.RestAddr(), "app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{}),
	} {
		if err := exchange(t, c, "orders"); err != nil {
			t.Errorf("%s = %v, want nil", name, err)
		}
	}
	for name, c := range map[string]struct {
		client *azservicebus.Client
		want   string
	}{
		"another key":    {sdkClient(t, with("app", "d3Jvbmc="), &azservicebus.ClientOptions{TLSConfig: trust}), "InvalidSignature: The token has an invalid signature."},
		"Send alone":     {sdkClient(t, with("sender", "c2VuZHNlbmRzZW5k"), &azservicebus.ClientOptions{TLSConfig: trust}), "'Listen' claim(s) are required"},
		"without TLS":    {sdkClient(t, config.ConnectionString(p.AMQPAddr(), "nobody", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{}), "InvalidSignature"},
		"over WebSocket": {sdkClient(t, with("app", "d3Jvbmc="), &azservicebus.ClientOptions{NewWebSocketConn: overWebSocket(secure, trust)}), "InvalidSignature"},
	} {
		var refused *azservicebus.Error
		err := exchange(t, c.client, "orders")
		if !errors.As(err, &refused) || refused.Code != azservicebus.CodeUnauthorizedAccess || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v, want unauthorized access with %q", name, err, c.want)
		}
	}
	if err := exchange(t, sdkClient(t, with("sender", "c2VuZHNlbmRzZW5k"), &azservicebus.ClientOptions{TLSConfig: trust}), "bills"); err == nil {
		t.Error("a key of orders sends to bills")
	}
	if err := exchange(t, sdkClient(t, config.ConnectionString(secure, "app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{}), "orders"); err == nil {
		t.Error("the TLS endpoint takes AMQP without TLS")
	}
}

func TestRequestsComeThroughTheTLSEndpointWithTheirKey(t *testing.T) {
	p := startEndpoints(t, keyedEndpoints)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trusts(t, p)}}
	token := sas.Make("app", "c2VjcmV0c2VjcmV0", "https://localhost/orders", time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		url, token string
		status     int
		want       string
	}{
		"over TLS":                    {"https://" + p.endpoints.addrs[2], token, 201, ""},
		"over TLS, the REST endpoint": {"https://" + p.RestAddr(), token, 201, ""},
		"without TLS":                 {"http://" + p.RestAddr(), token, 201, ""},
		"no token":                    {"https://" + p.endpoints.addrs[2], "", 401, "MissingToken: The authorization header was not found."},
		"http at the TLS endpoint":    {"http://" + p.endpoints.addrs[2], token, 403, "This port speaks TLS only. Begin the URL with https."},
	} {
		if status, body, err := post(t, web, c.url, c.token); err != nil || status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, %v; want %d with %q", name, status, body, err, c.status, c.want)
		}
	}
}

// post sends a message to orders over REST.
func post(t *testing.T, web *http.Client, endpoint, token string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/orders/messages", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Overdue-Within", `"1m"`)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	answer, err := web.Do(r)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	return answer.StatusCode, string(text), err
}

// An endpoint that others can reach takes TLS and nothing else.
func TestAnEndpointBeyondLoopbackTakesTLSAlone(t *testing.T) {
	p := startEndpoints(t, strings.NewReplacer("amqp: 127.0.0.1:0", "amqp: 0.0.0.0:0", "amqps: 127.0.0.1:0", "tls: {enabled: true, hosts: broker.example}").Replace(keyedEndpoints))
	_, port, err := net.SplitHostPort(p.AMQPAddr())
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(t, sdkClient(t, "Endpoint=sb://localhost:"+port+";SharedAccessKeyName=app;SharedAccessKey=c2VjcmV0c2VjcmV0", &azservicebus.ClientOptions{TLSConfig: trusts(t, p)}), "orders"); err != nil {
		t.Errorf("over TLS = %v, want nil", err)
	}
	if err := exchange(t, sdkClient(t, config.ConnectionString("127.0.0.1:"+port, "app", "c2VjcmV0c2VjcmV0"), &azservicebus.ClientOptions{}), "orders"); err == nil {
		t.Error("it takes AMQP without TLS")
	}
	var b strings.Builder
	p.banner(&b)
	want := "\nEndpoint=sb://localhost:" + port + ";SharedAccessKeyName=app;SharedAccessKey=<the key>\n"
	if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "UseDevelopmentEmulator=true;\nand over TLS") {
		t.Errorf("the banner lacks %q:\n%s", want, b.String())
	}
	if strings.Contains(b.String(), "c2VjcmV0c2VjcmV0") {
		t.Errorf("the banner shows a key:\n%s", b.String())
	}
}

// The app keeps the connection string of its namespace, here the embedded broker, and is
// led to the endpoint by its SDK's custom endpoint address.
func TestTheKeyOfAnAppPassesOnToTheNamespace(t *testing.T) {
	p := startEndpoints(t, `
listen: {amqp: "127.0.0.1:0", http: "127.0.0.1:0", admin: "127.0.0.1:0", amqps: "127.0.0.1:0"}
proxy: {credentials: client}
broker:
  autoCreate: true
  keys: [{name: theirs, key: bmFtZXNwYWNl, send: true, listen: true}]
`)
	at := &azservicebus.ClientOptions{TLSConfig: trusts(t, p), CustomEndpoint: named(p.endpoints.addrs[2], p.endpoints.certificate.Names)}
	if err := exchange(t, sdkClient(t, "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=theirs;SharedAccessKey=bmFtZXNwYWNl", at), "orders"); err != nil {
		t.Errorf("with the namespace's key = %v, want nil", err)
	}
	err := exchange(t, sdkClient(t, "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=theirs;SharedAccessKey=d3Jvbmc=", at), "orders")
	if err == nil || !strings.Contains(err.Error(), "InvalidSignature: The token has an invalid signature.") {
		t.Errorf("with another key = %v, want the namespace's refusal", err)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trusts(t, p)}}
	for key, want := range map[string]struct {
		status int
		say    string
	}{"bmFtZXNwYWNl": {201, ""}, "d3Jvbmc=": {401, "InvalidSignature: The token has an invalid signature."}} {
		token := sas.Make("theirs", key, "https://contoso.servicebus.windows.net/orders", time.Now().Add(time.Hour))
		if status, body, err := post(t, web, "https://"+p.endpoints.addrs[2], token); err != nil || status != want.status || !strings.Contains(body, want.say) {
			t.Errorf("over REST: %d %s, %v; want %d with %q", status, body, err, want.status, want.say)
		}
	}
	var b strings.Builder
	p.banner(&b)
	if want := "custom endpoint address of their SDK:\n  sb://localhost:"; !strings.Contains(b.String(), want) {
		t.Errorf("the banner lacks %q:\n%s", want, b.String())
	}
}
