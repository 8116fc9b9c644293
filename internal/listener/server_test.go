// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/pipenet"
)

const host = "listener.test"

// A scene is a listener on a network in memory. Its AMQP answers "amqp " and then echoes; its
// HTTP answers with the path.
type scene struct {
	*testing.T
	net    *pipenet.Network
	server *Server
	errs   chan error // what the server has logged
}

func setup(t *testing.T, tlsOnly bool, change ...func(*Config)) *scene {
	t.Helper()
	sc := &scene{T: t, net: pipenet.New(), errs: make(chan error, 100)}
	t.Cleanup(func() { sc.net.Cut() })
	cfg := Config{
		AMQP: func(nc net.Conn) error {
			defer nc.Close()
			_, err := io.Copy(nc, io.MultiReader(strings.NewReader("amqp "), nc))
			return err
		},
		HTTP:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }),
		ErrorLog: func(err error) { sc.errs <- err },
	}
	for _, f := range change {
		f(&cfg)
	}
	sc.server = New(cfg)
	ln, err := sc.net.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	serve := sc.server.Serve
	if tlsOnly {
		serve = sc.server.ServeTLS
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln) }()
	t.Cleanup(func() {
		if err := sc.server.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return sc
}

func (sc *scene) dial() net.Conn {
	sc.Helper()
	c, err := sc.net.Dial(sc.Context(), host)
	if err != nil {
		sc.Fatal(err)
	}
	sc.Cleanup(func() { c.Close() })
	return c
}

// say sends what a client says, and returns what it hears until the server hangs up.
func (sc *scene) say(c net.Conn, what string) string {
	sc.Helper()
	heard := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(c) // how it ends does not matter
		heard <- b
	}()
	_, _ = io.WriteString(c, what) // it may be hung up on
	return string(<-heard)
}

func (sc *scene) wantLog(want error) {
	sc.Helper()
	select {
	case err := <-sc.errs:
		if !errors.Is(err, want) {
			sc.Errorf("logged %v, want %v", err, want)
		}
	case <-time.After(time.Minute):
		sc.Errorf("nothing was logged, want %v", want)
	}
}

func TestARefusedCertificateThatHasEndedIsNamed(t *testing.T) {
	b, err := MakeBundle([]string{host}, time.Now().Add(-2*certificateLife))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(b.Certificate, b.Key)
	if err != nil {
		t.Fatal(err)
	}
	sc := setup(t, true, func(c *Config) { c.TLS = newCertificate(pair, "", "").TLS })
	c := sc.dial()
	if err := tls.Client(c, &tls.Config{ServerName: host, RootCAs: x509.NewCertPool(), MaxVersion: tls.VersionTLS12}).Handshake(); err == nil {
		t.Fatal("the client takes a certificate that has ended")
	}
	c.Close()
	want := "the certificate that is served ended at " + pair.Leaf.NotAfter.UTC().Format(time.RFC3339)
	if err := <-sc.errs; !strings.Contains(err.Error(), want) {
		t.Errorf("logged %v, want %s", err, want)
	}
}

func TestAListenerForTLSAnswersPlainClients(t *testing.T) {
	certificate := made(t)
	for name, c := range map[string]struct{ says, want string }{
		"AMQP":             {"AMQP\x03\x01\x00\x00", "AMQP\x02\x01\x00\x00"},
		"no protocol":      {"\x00\x01\x02\x03", "AMQP\x02\x01\x00\x00"},
		"HTTP":             {"GET /orders HTTP/1.1\r\nHost: h\r\n\r\n", "This port speaks TLS only. Begin the URL with https.\n"},
		"HTTP with a body": {"POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), "This port speaks TLS only. Begin the URL with https.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, true, func(cfg *Config) { cfg.TLS = certificate.TLS })
				began := time.Now()
				heard := sc.say(sc.dial(), c.says)
				if !strings.HasSuffix(heard, c.want) {
					t.Errorf("heard %q, want it to end in %q", heard, c.want)
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("the server hung up after %v, want 11 s at most", took)
				}
				sc.wantLog(ErrPlain)
			})
		})
	}
}

func TestAListenerForTLSTakesAMQPAndHTTP(t *testing.T) {
	certificate := made(t)
	client := trust(t, certificate)
	sc := &scene{T: t, errs: make(chan error, 10)}
	for name, c := range map[string]struct{ says, want string }{
		"AMQP": {"AMQP\x00\x01\x00\x00", "amqp AMQP\x00\x01\x00\x00"},
		"HTTP": {"GET /orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "/orders"},
	} {
		a, b := tcpPipe(t)
		server := New(Config{AMQP: func(nc net.Conn) error {
			defer nc.Close()
			head := make([]byte, 8)
			if _, err := io.ReadFull(nc, head); err != nil {
				return err
			}
			_, err := nc.Write(append([]byte("amqp "), head...))
			return err
		}, HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil {
				http.Error(w, "not within TLS", http.StatusTeapot)
			}
			_, _ = io.WriteString(w, r.URL.Path)
		}), TLS: certificate.TLS})
		go func() { _ = server.serveConn(a, false) }() // what it did, the client hears
		if heard := sc.say(tls.Client(b, client), c.says); !strings.HasSuffix(heard, c.want) {
			t.Errorf("%s: heard %q, want it to end in %q", name, heard, c.want)
		}
		if err := server.Close(); err != nil {
			t.Errorf("%s: Close = %v, want nil", name, err)
		}
	}
}

// A client that sends a byte now and then must not stay for longer than one that
// sends none.
func TestASlowClientIsDisconnected(t *testing.T) {
	certificate := made(t)
	// The first messages of a handshake, to be sent byte by byte.
	var hello bytes.Buffer
	_ = tls.Client(onlyWrites{&hello}, &tls.Config{ServerName: "localhost"}).Handshake() // nobody answers
	upgrade := "GET " + WebSocketPath + " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + strings.Repeat("X-A: b\r\n", 100)
	for name, says := range map[string]string{"TLS": hello.String(), "the upgrade to WebSocket": upgrade} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, false, func(cfg *Config) { cfg.TLS = certificate.TLS })
				c := sc.dial()
				began := time.Now()
				dribbled := make(chan struct{})
				go func() {
					defer close(dribbled)
					for _, b := range []byte(says) {
						if _, err := c.Write([]byte{b}); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				}()
				_, _ = io.Copy(io.Discard, c) // it may get the reason
				took := time.Since(began)
				<-dribbled
				if took > 25*time.Second {
					t.Errorf("let go after %v, want 25 s at most", took)
				}
			})
		})
	}
}

type onlyWrites struct{ io.Writer }

func (onlyWrites) Read([]byte) (int, error)         { return 0, io.EOF }
func (onlyWrites) Close() error                     { return nil }
func (onlyWrites) LocalAddr() net.Addr              { return feedAddr{} }
func (onlyWrites) RemoteAddr() net.Addr             { return feedAddr{} }
func (onlyWrites) SetDeadline(time.Time) error      { return nil }
func (onlyWrites) SetReadDeadline(time.Time) error  { return nil }
func (onlyWrites) SetWriteDeadline(time.Time) error { return nil }

// Probes connect and hang up, all day long.
func TestAnIdleConnectionIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, false)
		sc.dial().Close()
		synctest.Wait()
		select {
		case err := <-sc.errs:
			t.Errorf("logged %v, want nothing", err)
		default:
		}
	})
}

func TestHeadsOfRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, false)
		heard := sc.say(sc.dial(), "GET / HTTP/1.1\r\nHost: h\r\nX-Large: "+strings.Repeat("x", 100_000)+"\r\n\r\n")
		if !strings.HasPrefix(heard, "HTTP/1.1 431 ") {
			t.Errorf("heard %.60q, want status 431", heard)
		}
	})
}

func TestAWebSocketNeedsItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, false)
		const rest = " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
		for path, want := range map[string]int{
			"/": 200, "/$servicebus": 200, "/$servicebus/websocket/more": 200,
			"/$servicebus/websocket": 101, "/$ServiceBus/WebSocket/": 101,
		} {
			c := sc.dial()
			if _, err := io.WriteString(c, "GET "+path+rest); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != want {
				t.Errorf("%s: %v, %v; want status %d", path, answer, err, want)
			}
			c.Close()
		}
	})
}

// Where a token is asked for, a page may come from anywhere: it has none.
func TestOnlyAnOpenListenerChecksOrigins(t *testing.T) {
	for _, open := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sc := setup(t, false, func(cfg *Config) { cfg.Open = open })
			for path, want := range map[string]string{"/orders/messages": "HTTP/1.1 200", WebSocketPath: "HTTP/1.1 4"} {
				if open {
					want = "HTTP/1.1 403"
				}
				heard := sc.say(sc.dial(), "GET "+path+" HTTP/1.1\r\nHost: h\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n")
				if !strings.HasPrefix(heard, want) || strings.Contains(heard, "Pages of other machines") != open {
					t.Errorf("open %v: %s from a page: %.80q, want %s", open, path, heard, want)
				}
			}
		})
	}
}

func TestShutdownFinishesRequestsAndLeavesAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sc := setup(t, false, func(cfg *Config) {
			cfg.HTTP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-release:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "finished")
			})
		})
		app := sc.dial()
		if _, err := io.WriteString(app, "AMQP"); err != nil {
			t.Fatal(err)
		}
		heard := make(chan string)
		go func() { heard <- sc.say(sc.dial(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n") }()
		synctest.Wait()
		ended := make(chan error)
		go func() { ended <- sc.server.Shutdown(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("Shutdown = %v with a request in flight", err)
		default:
		}
		if _, err := sc.net.Dial(t.Context(), host); err == nil {
			t.Error("Dial during Shutdown = nil, want an error")
		}
		close(release)
		if got := <-heard; !strings.HasSuffix(got, "finished") {
			t.Errorf("the request in flight heard %q, want it finished", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		echo := make([]byte, 9)
		if _, err := io.ReadFull(app, echo); err != nil || string(echo) != "amqp AMQP" {
			t.Errorf("AMQP after Shutdown: %q, %v; want it to go on", echo, err)
		}
	})
}

func made(t *testing.T) *Certificate {
	t.Helper()
	c, err := SelfMade(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
