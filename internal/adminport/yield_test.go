// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"bufio"
	"context"
	"crypto/tls"
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

func servePort(t *testing.T, h http.Handler, most int) *probePort {
	t.Helper()
	p := &probePort{t, pipenet.New()}
	ln, err := p.net.Listen("probes")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h, WriteTimeout, zap.NewNop())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(yielding(ln, most)) }()
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

// isOpen reports whether the other end has not closed c, of which nothing is to be read.
func isOpen(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// Who is silent, who sends half a header, who keeps a connection after the answer and who states a
// body that does not come hold connections for nothing.
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
			fmt.Fprint(p.dial(), "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := servePort(t, testAdmin(t).Probes(), maxConns)
				began := time.Now()
				for range maxConns + 12 {
					hold(p)
				}
				synctest.Wait()
				resp, body, err := p.ask("/livez")
				if took := time.Since(began); err != nil || resp.StatusCode != 200 || body != "ok\n" || took > answerGrace {
					t.Errorf("GET /livez = %v %q %v after %v, want ok within %v", resp, body, err, took, answerGrace)
				}
			})
		})
	}
}

func TestTheOldestIdleConnectionYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streaming, finish := make(chan struct{}), make(chan struct{})
		p := servePort(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/profile" {
				return
			}
			fmt.Fprint(w, "first half, ")
			_ = http.NewResponseController(w).Flush()
			close(streaming)
			<-finish
			fmt.Fprint(w, "second half")
		}), 3)
		profile := make(chan string, 1)
		go func() {
			_, body, err := p.ask("/profile")
			profile <- fmt.Sprint(body, err)
		}()
		<-streaming
		oldest := p.dial()
		time.Sleep(time.Second / 4) // fake
		older := p.dial()
		synctest.Wait()
		if !isOpen(oldest) || !isOpen(older) {
			t.Fatal("a connection was closed while there was room")
		}
		newest := p.dial()
		synctest.Wait()
		if isOpen(oldest) || !isOpen(older) || !isOpen(newest) {
			t.Errorf("open: oldest idle %v, other idle %v, newest %v; want only the oldest idle one closed", isOpen(oldest), isOpen(older), isOpen(newest))
		}
		for range 20 {
			p.dial()
		}
		close(finish)
		if got, want := <-profile, "first half, second half<nil>"; got != want {
			t.Errorf("the answer under way was %q, want %q", got, want)
		}
	})
}

// Where everybody is being answered nobody yields, and the next one waits.
func TestANewConnectionWaitsWhileAllAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p := servePort(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/profile" {
				<-hold
			}
		}), 2)
		answered := make(chan string, 3)
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
		ask("/profile")
		ask("/profile")
		ask("/livez")
		select {
		case got := <-answered:
			t.Fatalf("%s while all places were taken, want no answer yet", got)
		default:
		}
		close(hold)
		got := strings.Join([]string{<-answered, <-answered, <-answered}, ", ")
		if strings.Count(got, "/profile 200 OK") != 2 || strings.Count(got, "/livez 200 OK") != 1 {
			t.Errorf("answers %s, want both profiles and the probe", got)
		}
	})
}

func TestAYieldingListenerClosesWhileAllAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipenet.New()
		ln, err := network.Listen("probes")
		if err != nil {
			t.Fatal(err)
		}
		l := yielding(ln, 1)
		accepted, ended := make(chan net.Conn, 1), make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				if !c.(*yieldingConn).move(connBusy) {
					t.Error("a connection that was accepted has no place")
				}
				accepted <- c
			}
		}()
		for range 2 {
			c, err := network.Dial(t.Context(), "probes")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		first := <-accepted
		synctest.Wait()
		l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept = %v, want net.ErrClosed", err)
		}
		first.Close()
		first.Close() // a second close must not free a second place
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.busy != 0 || len(l.idle) != 0 {
			t.Errorf("%d busy and %d idle connections are counted after all have closed, want none", l.busy, len(l.idle))
		}
	})
}

// Its peer may send a header byte by byte for no longer than the bound.
func TestASlowHeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := servePort(t, testAdmin(t).Probes(), maxConns)
		c := p.dial()
		began := time.Now()
		go func() { _, _ = io.Copy(io.Discard, c) }() // there may be a complaint
		for {
			if _, err := io.WriteString(c, "G"); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // fake
		}
		if took := time.Since(began); took > readHeaderTimeout+time.Second {
			t.Errorf("the header was read for %v, want %v", took, readHeaderTimeout)
		}
	})
}

// Where TLS is inside of the bounded listener, the connection below it is the one that has a place.
func TestTheConnectionBelowTLSKeepsItsPlace(t *testing.T) {
	c := &yieldingConn{}
	for name, nc := range map[string]net.Conn{"plain": c, "TLS": tls.Server(c, &tls.Config{})} {
		if got := withYieldingConn(t.Context(), nc).Value(yieldingConnKey{}); got != c {
			t.Errorf("%s: the context has %T, want the connection with the place", name, got)
		}
	}
}
