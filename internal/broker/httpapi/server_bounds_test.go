// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/listener"
)

func TestSilentClientsAreLetGo(t *testing.T) {
	certificate := selfMade(t)
	for name, says := range map[string]string{
		"nothing":        "",
		"one byte":       "A",
		"half a record":  "\x16\x03\x01\x02",
		"half a request": "GET / HTTP/1.1\r\nHost: ",
		"half a header":  "AMQP\x00",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, func(c *Config) { c.TLS = certificate.TLS })
				c := sc.dial()
				if _, err := io.WriteString(c, says); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_ = c.SetReadDeadline(began.Add(time.Hour))
				_, err := io.Copy(io.Discard, c)
				if took := time.Since(began); err != nil || took > 35*time.Second {
					t.Errorf("the server hung up after %v with %v, want at most 35 s and nil", took, err)
				}
			})
		})
	}
}

func TestSilentClientsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for range 50 {
			sc.dial()
		}
		began := time.Now()
		sc.exchange(sc.client(connectionString, sc.plain))
		if took := time.Since(began); took > time.Second {
			t.Errorf("behind silent clients an exchange took %v, want at most 1 s", took)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(c *Config) { c.MaxConns = 2 })
		first, second := sc.dial(), sc.dial()
		for _, c := range []net.Conn{first, second} { // who says nothing would yield
			if _, err := io.WriteString(c, "AMQP"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		third := sc.dial()
		if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read on one connection too many = %v, want EOF", err)
		}
		sc.wantLog(ErrTooManyConns)
		first.Close()
		synctest.Wait()
		if status, _ := sc.get("/health"); status != http.StatusOK {
			t.Errorf("GET /health when one is gone = %d, want 200", status)
		}
	})
}

func TestTLSWithoutACertificateIsAClearRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		c := tls.Client(sc.dial(), &tls.Config{ServerName: "localhost"})
		err := c.HandshakeContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "handshake failure") {
			t.Errorf("Handshake = %v, want a handshake failure", err)
		}
		sc.wantLog(listener.ErrNoTLS)
	})
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		client := sc.client(connectionString, sc.plain)
		sc.exchange(client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := sc.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if _, err := sc.net.Dial(t.Context(), host); err == nil {
			t.Error("Dial after Shutdown = nil, want an error")
		}
		client2, server2 := net.Pipe()
		defer client2.Close()
		if err := sc.server.ServeConn(server2); !errors.Is(err, ErrServerClosed) {
			t.Errorf("ServeConn after Shutdown = %v, want ErrServerClosed", err)
		}
		sc.exchange(client) // AMQP goes on until the broker ends it
	})
}

func TestCloseCutsEverything(t *testing.T) {
	certificate := selfMade(t)
	sc := setupTCP(t, broker.Config{AutoCreate: true}, func(c *Config) { c.TLS = certificate.TLS })
	for _, d := range []dialer{sc.plain, sc.overTLS(trust(t, certificate)), sc.overWebSocket("ws", "amqp", nil)} {
		sc.exchange(sc.client(connectionString, d))
	}
	sc.dial()
	if err := sc.server.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := sc.server.Serve(closedListener{}); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Serve after Close = %v, want ErrServerClosed", err)
	}
}

type closedListener struct{ net.Listener }

func (closedListener) Close() error { return os.ErrClosed }

func TestARequestThatWaitsGetsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		answers := make(chan int, 1)
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/orders/messages/head?timeout=60", nil)
			if err != nil {
				panic(err)
			}
			answers <- sc.do(r).StatusCode
		}()
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := sc.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Shutdown took %v, want at most 5 s", took)
		}
		if got := <-answers; got != http.StatusServiceUnavailable {
			t.Errorf("the answer to a receive that waited = %d, want 503", got)
		}
	})
}

func TestTheAnswerToASlowBodyComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		c := sc.dial()
		began := time.Now()
		if _, err := io.WriteString(c, "POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 64)
		n, err := c.Read(answer)
		if took := time.Since(began); err != nil || took > 2*time.Minute {
			t.Errorf("after %v: %q, %v, want an answer within 2 min", took, answer[:n], err)
		}
	})
}
