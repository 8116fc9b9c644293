// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// hostile is the address of a Redis that lets clients in and answers everything they ask with the
// same bytes. It counts the connections that clients have closed.
func hostile(t *testing.T, answer func(net.Conn)) (address string, closed *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed = &atomic.Int32{}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer nc.Close()
				b := make([]byte, 64<<10)
				for {
					n, err := nc.Read(b)
					if err != nil {
						closed.Add(1)
						return
					}
					if bytes.Contains(bytes.ToLower(b[:n]), []byte("hello")) {
						_, _ = io.WriteString(nc, "-ERR unknown command 'HELLO'\r\n") // as Redis 5 says
						continue
					}
					answer(nc)
				}
			}()
		}
	}()
	return "redis://" + ln.Addr().String(), closed
}

// Bytes that are stated and do not come must cost nothing: the client would make room for them at
// once.
func TestAHostileRedisIsAsOneThatIsGone(t *testing.T) {
	endless := func(piece string) func(net.Conn) {
		b := []byte(strings.Repeat(piece, 4096))
		return func(nc net.Conn) {
			for {
				if _, err := nc.Write(b); err != nil {
					return
				}
			}
		}
	}
	say := func(text string) func(net.Conn) {
		return func(nc net.Conn) { _, _ = io.WriteString(nc, text) }
	}
	for name, answer := range map[string]func(net.Conn){
		"an array":              say("*2000000000\r\n"),
		"a map":                 say("%2000000000\r\n"),
		"a string":              say("$2000000000\r\n"),
		"a length with a sign":  say("*+2000000000\r\n"),
		"a length with zeros":   say("*" + strings.Repeat("0", 30) + "2000000000\r\n"),
		"a length of 20 digits": say("$99999999999999999999\r\n"),
		"arrays in arrays":      endless("*1\r\n"),
		"large arrays nested":   endless("*100000\r\n"),
		"a line without end":    endless("+xxxxxxxxxxxxxxx"),
		"attributes":            endless("|0\r\n"),
		"an answer split late":  func(nc net.Conn) { _, _ = nc.Write([]byte("*20000")); _, _ = nc.Write([]byte("00000\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			address, closed := hostile(t, answer)
			s := open(t, address)
			s.cfg.Slack = 400 // the bound on bytes has to be met first, on a busy machine too
			notified := s.Notified()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := notified.Begin(t.Context(), "event")
			runtime.ReadMemStats(&after)
			if !errors.Is(err, errAnswerTooLong) {
				t.Fatalf("Begin = %v, want an excess", err)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 3*maxAnswer {
				t.Errorf("%d MiB were allocated, want %d at most", made>>20, 3*maxAnswer>>20)
			}
			if _, _, err := notified.Begin(t.Context(), "event"); !errors.Is(err, ErrDown) {
				t.Errorf("the next Begin = %v, want ErrDown: as of one that is gone", err)
			}
			eventually(t, func() error {
				if closed.Load() == 0 {
					return errors.New("the connection was not closed")
				}
				return nil
			})
		})
	}
}

// Many answers to what was asked together have one bound.
func TestAHostileRedisIsBoundedInAPipeline(t *testing.T) {
	value := "*2\r\n$1\r\nx\r\n$1000000\r\n" + strings.Repeat("x", 1_000_000) + "\r\n"
	address, _ := hostile(t, func(nc net.Conn) {
		for range 1000 {
			if _, err := io.WriteString(nc, value); err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := open(t, address).client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 1000 {
			p.HGetAll(t.Context(), strings.Repeat("k", 10))
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errAnswerTooLong) {
		t.Errorf("the pipeline = %v, want an excess", err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 3*maxAnswer {
		t.Errorf("%d MiB were allocated, want %d at most", made>>20, 3*maxAnswer>>20)
	}
}

// The listener subscribes again.
func TestAHostileRedisIsBoundedWhereItIsListenedTo(t *testing.T) {
	address, closed := hostile(t, func(nc net.Conn) {
		_, _ = io.WriteString(nc, "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$2000000000\r\n")
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := open(t, address).Companions()
	go func() { ended <- c.Listen(ctx) }()
	defer func() {
		stop()
		must(t, <-ended)
	}()
	eventually(t, func() error {
		if closed.Load() < 2 {
			return errors.New("the connection was not closed twice")
		}
		return nil
	})
}

// loudConn has data whenever it is read.
type loudConn struct {
	net.Conn
	message []byte
	every   time.Duration
}

func (c *loudConn) Read(b []byte) (int, error) {
	time.Sleep(c.every) // fake
	return copy(b, c.message), nil
}

func (c *loudConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *loudConn) Close() error                { return nil }

// A subscriber asks once and may get messages for ever, if they are not too large.
func TestAListenerIsNotifiedForEver(t *testing.T) {
	message := []byte("*3\r\n$7\r\nmessage\r\n$4\r\nwake\r\n$1000\r\n" + strings.Repeat("0", 1000) + "\r\n")
	for every, forEver := range map[time.Duration]bool{10 * time.Millisecond: true, 100 * time.Microsecond: false} {
		synctest.Test(t, func(t *testing.T) {
			nc, err := boundedDial(func(context.Context, string, string) (net.Conn, error) {
				return &loudConn{message: message, every: every}, nil
			})(t.Context(), "tcp", "redis")
			must(t, err)
			r := bufio.NewReader(nc)
			for read := 0; read < 3*maxAnswer && err == nil; {
				var n int
				n, err = r.Read(make([]byte, 4096))
				read += n
			}
			if (err == nil) != forEver {
				t.Errorf("%d bytes every %v for long: %v, want an error %v", len(message), every, err, !forEver)
			}
		})
	}
}

// A connection hands out its bytes in pieces of any size.
func TestALengthIsReadWhereverItIsSplit(t *testing.T) {
	const harmless = "*2\r\n$7\r\n*\r\n$\r\nx\r\n|1\r\n+OK\r\n:-1\r\n$-1\r\n*-1\r\n-ERR *2000000000\r\n%131000\r\n"
	for text, want := range map[string]bool{
		harmless:                     true,
		harmless + "*2000000000\r\n": false,
		harmless + "$33554433\r\n":   false,
		harmless + "%131000\r\n":     false, // both maps together
	} {
		for cut := range len(text) {
			c := &boundedConn{since: time.Now()}
			if got := c.admit([]byte(text[:cut])) && c.admit([]byte(text[cut:])); got != want {
				t.Fatalf("%.100q, cut at %d, is admitted: %v, want %v", text, cut, got, want)
			}
		}
	}
}
