// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// documented are the connection strings of docs/broker/README.md, with the address and the key of
// ns.
func documented(t *testing.T, ns *namespace) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/broker/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Connection strings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, port, _ := net.SplitHostPort(ns.addr) // it was listened on
	var all []string
	for _, m := range regexp.MustCompile("`(Endpoint=[^`]+)`").FindAllStringSubmatch(section, -1) {
		s := strings.Replace(m[1], ":5673", ":"+port, 1)
		all = append(all, strings.Replace(s, "SharedAccessKey=any", "SharedAccessKey="+ns.key, 1))
	}
	return all
}

func roundTrip(t *testing.T, connectionString string, o *azservicebus.ClientOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o.RetryOptions.MaxRetries = -1
	client, err := azservicebus.NewClientFromConnectionString(connectionString, o)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // what it was opened for is done, or failed
	sender, err := client.NewSender("send-receive", nil)
	if err != nil {
		return err
	}
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue("send-receive", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		return err
	}
	_, err = receiver.ReceiveMessages(ctx, 1, nil)
	return err
}

// The other SDKs use theirs in the scenarios tls, websocket and administration.
func TestTheConnectionStringsOfTheDocsLeadToTheBroker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program; not with -short")
	}
	ns := newNamespace(t, buildBroker(t), "broker", "")
	all := documented(t, ns)
	if len(all) != 2 {
		t.Fatalf("the docs have the connection strings %q, want a plain one and one for TLS", all)
	}
	plain, secure := all[0], all[1]
	at := onLocalhost(ns.addr)
	withoutPort := strings.Replace(secure, at, "localhost", 1)
	pem, err := os.ReadFile(ns.caFile)
	if err != nil {
		t.Fatal(err)
	}
	trusted := &tls.Config{RootCAs: x509.NewCertPool()}
	trusted.RootCAs.AppendCertsFromPEM(pem)

	if err := roundTrip(t, plain, &azservicebus.ClientOptions{}); err != nil {
		t.Errorf("plain: %v", err)
	}
	if err := roundTrip(t, withoutPort, &azservicebus.ClientOptions{TLSConfig: trusted, CustomEndpoint: at}); err != nil {
		t.Errorf("TLS, by CustomEndpoint: %v", err)
	}
	// As soon as this succeeds the docs can say so.
	if err := roundTrip(t, secure, &azservicebus.ClientOptions{TLSConfig: trusted}); err == nil || !strings.Contains(err.Error(), "certificate is valid for localhost") {
		t.Errorf("TLS, by the port of the string: %v, want the complaint of the SDK that the docs quote", err)
	}

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	defer web.CloseIdleConnections()
	for name, s := range map[string]string{"plain": plain, "TLS": secure} {
		s = strings.Replace(s, ns.addr, at, 1) // the name that the certificate is for
		client, err := admin.NewClientFromConnectionString(s, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: web}})
		if err != nil {
			t.Fatal(err)
		}
		if q, err := client.GetQueue(t.Context(), "send-receive", nil); err != nil || q == nil {
			t.Errorf("administration by the %s string: %v, %v", name, q, err)
		}
	}
}
