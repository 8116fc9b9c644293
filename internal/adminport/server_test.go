// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/internal/testing/pipenet"
)

// A probePort is a served admin port, on a network in memory.
type probePort struct {
	t   *testing.T
	net *pipenet.Network
}

func servePort(t *testing.T, h http.Handler) *probePort {
	t.Helper()
	p := &probePort{t, pipenet.New()}
	ln, err := p.net.Listen("probes")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h, WriteTimeout, zap.NewNop())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(LimitConns(ln)) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	return p
}

func (p *probePort) dial() net.Conn {
	p.t.Helper()
	c, err := p.net.Dial(context.Background(), "probes")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a request over a connection of its own, which stays open.
func (p *probePort) ask(target string) (*http.Response, string, error) {
	p.t.Helper()
	return askOver(p.dial(), target)
}

func askOver(c net.Conn, target string) (*http.Response, string, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n", target); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// Clients hold connections for nothing: they are silent, send half a header, keep a connection
// after the answer, or state a body that does not come.
func TestProbesAnswerWhileOthersHoldConnections(t *testing.T) {
	for name, hold := range map[string]func(*probePort){
		"silent":        func(p *probePort) { p.dial() },
		"half a header": func(p *probePort) { fmt.Fprint(p.dial(), "GET /livez HTTP/1.1\r\nHost: ") },
		"keep-alive": func(p *probePort) {
			if resp, body, err := p.ask("/livez"); err != nil || resp.StatusCode != 200 || !resp.Close || body != "ok\n" {
				p.t.Errorf("GET /livez = %v %q %v, want 200 ok, and the connection closed", resp, body, err)
			}
		},
		"a body that does not come": func(p *probePort) {
			c := p.dial()
			fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
			go func() { _, _ = io.Copy(io.Discard, c) }() // as a socket has room for an answer
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := servePort(t, testAdmin(t).Probes())
				began := time.Now()
				for range maxConns + 12 {
					hold(p)
				}
				synctest.Wait()
				resp, body, err := p.ask("/livez")
				if took := time.Since(began); err != nil || resp.StatusCode != 200 || body != "ok\n" || took > requestTimeout+time.Second {
					t.Errorf("GET /livez = %v %q %v after %v, want ok when the others are cut off after %v", resp, body, err, took, requestTimeout)
				}
			})
		})
	}
}

// Where everybody is being answered the next one waits.
func TestANewConnectionWaitsWhileAllAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := servePort(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/profile" {
				<-hold
			}
		}))
		answered := make(chan string, maxConns+1)
		ask := func(target string) {
			go func() {
				resp, _, err := p.ask(target)
				if err != nil {
					answered <- err.Error()
					return
				}
				answered <- target + " " + resp.Status
			}()
			synctest.Wait()
		}
		for range maxConns {
			ask("/profile")
		}
		ask("/livez")
		time.Sleep(2 * requestTimeout) // fake: an answer may take longer than a request
		synctest.Wait()
		if n := len(answered); n > 0 {
			t.Fatalf("%d answers while all places were taken, the first %s; want none yet", n, <-answered)
		}
		close(hold)
		for range maxConns + 1 {
			if got := <-answered; !strings.HasSuffix(got, " 200 OK") {
				t.Errorf("%s, want 200 OK", got)
			}
		}
	})
}

// Its peer may send a header byte by byte for no longer than the bound.
func TestASlowHeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePort(t, testAdmin(t).Probes())
		c := p.dial()
		began := time.Now()
		go func() { _, _ = io.Copy(io.Discard, c) }() // there may be a complaint
		for {
			if _, err := io.WriteString(c, "G"); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // fake
		}
		if took := time.Since(began); took > requestTimeout+time.Second {
			t.Errorf("the header was read for %v, want %v", took, requestTimeout)
		}
	})
}
