// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"overdue/internal/broker"
	"overdue/internal/listener"
)

// BenchmarkWays is one client of the SDK with 16 senders of messages of 256
// bytes, through each way on the loopback interface.
func BenchmarkWays(b *testing.B) {
	certificate, err := listener.SelfMade(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	ca, err := os.ReadFile(certificate.CAFile)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	trusting := &tls.Config{RootCAs: pool, ServerName: "localhost"}

	for _, way := range []struct {
		name string
		dial func(ctx context.Context, addr string) (net.Conn, error)
	}{
		{"AMQP", func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}},
		{"TLS", func(ctx context.Context, addr string) (net.Conn, error) {
			return (&tls.Dialer{Config: trusting}).DialContext(ctx, "tcp", addr)
		}},
		{"WebSocket", func(ctx context.Context, addr string) (net.Conn, error) {
			ws, _, err := websocket.Dial(ctx, "ws://"+addr+listener.WebSocketPath, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			br, err := broker.New(broker.Config{AutoCreate: true})
			if err != nil {
				b.Fatal(err)
			}
			defer br.Close()
			server := New(Config{Broker: br, TLS: certificate.TLS})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go server.Serve(ln)
			defer server.Close()
			client, err := azservicebus.NewClientFromConnectionString(connectionString, &azservicebus.ClientOptions{
				NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
					return way.dial(ctx, ln.Addr().String())
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close(context.Background())
			senders := make(chan *azservicebus.Sender, 16)
			for range cap(senders) {
				s, err := client.NewSender("q", nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := s.SendMessage(b.Context(), &azservicebus.Message{}, nil); err != nil { // attached
					b.Fatal(err)
				}
				senders <- s
			}
			body := make([]byte, 256)
			b.SetParallelism(8) // times GOMAXPROCS
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				s := <-senders
				defer func() { senders <- s }()
				for pb.Next() {
					if err := s.SendMessage(b.Context(), &azservicebus.Message{Body: body}, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
		})
	}
}
