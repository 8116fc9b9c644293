// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/testing/apptest"
	"overdue/internal/testing/testseed"
)

const postLine = "POST /orders/messages HTTP/1.1\r\nHost: h\r\n"

func TestPropertiesKeepTheSpellingOfTheSender(t *testing.T) {
	expiry := time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)
	type properties map[string]any
	tests := []struct {
		name, fields string
		want         properties
	}{
		{"camel case", "orderId: 7\r\n", properties{"orderId": int32(7)}},
		{"lower case", "order-id: 7\r\n", properties{"order-id": int32(7)}},
		{"upper case", "ORDER-ID: 7\r\n", properties{"ORDER-ID": int32(7)}},
		{"canonical", "Order-Id: 7\r\n", properties{"Order-Id": int32(7)}},
		{"every kind of character", "a_B.c~1#D: x\r\n", properties{"a_B.c~1#D": "x"}},
		{"several", "tenantId: t\r\nuserName: u\r\npriority: High\r\n", properties{"tenantId": "t", "userName": "u", "priority": "High"}},
		{"spaces", "orderId: \t 7 \t\r\nb:8\r\n", properties{"orderId": int32(7), "b": int32(8)}},
		{"no value", "orderId:\r\n", properties{"orderId": ""}},
		{"a value with colons", "orderId: \"ORDERID: 8\"\r\n", properties{"orderId": "ORDERID: 8"}},
		{"lines without carriage return", "orderId: 7\nuserName: u\r\n", properties{"orderId": int32(7), "userName": "u"}},
		{"deadlines", "Overdue-Within: 1h\r\nCE-ExpiryTime: 2033-11-06T08:49:37Z\r\n", properties{"overdue-within": "1h", "ce-expirytime": expiry}},
		{"CloudEvents", "Ce-Id: 5\r\nce-Type: x\r\nce-source: s\r\n", properties{"Ce-Id": int32(5), "ce-Type": "x", "ce-source": "s"}},
		{"headers of HTTP", "content-type: text/plain\r\nAUTHORIZATION: x\r\nx-forwarded-FOR: y\r\n", nil},
	}
	frames := []struct{ name, line, rest string }{
		{"length", postLine, "Content-Length: 5\r\n\r\nhello"},
		{"chunks", postLine, "transfer-encoding: Chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\ntrailer: x\r\n\r\n"},
		{"go-ahead", postLine, "expect: 100-continue\r\ncontent-length: 5\r\n\r\nhello"},
		{"HTTP 1.0", "POST /orders/messages HTTP/1.0\r\n", "Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"},
		{"bare line feeds", "POST /orders/messages HTTP/1.1\nHost: h\n", "Content-Length: 5\n\nhello"},
	}
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		conns := map[string]net.Conn{"at once": sc.serve(), "byte by byte": sc.connectAgain()}
		for slice, conn := range conns {
			in := bufio.NewReader(conn)
			for _, tt := range tests {
				for _, f := range frames {
					name := tt.name + "/" + f.name + "/" + slice
					go write(conn, f.line+tt.fields+f.rest, func() int { return map[string]int{"at once": 1 << 20, "byte by byte": 1}[slice] })
					if status, body := sc.answered(in); status != http.StatusCreated {
						t.Fatalf("%s: status %d %s, want 201", name, status, body)
					}
					held := sc.held()
					m := held[len(held)-1]
					if diff := cmp.Diff(map[string]any(tt.want), m.Properties); diff != "" || string(m.Body) != "hello" {
						t.Errorf("%s: body %q, properties (-want +got):\n%s", name, m.Body, diff)
					}
				}
			}
		}
	})
}

// write sends text in slices of so many bytes. It drops the error: after a failed write no answer
// comes, and the test that waits for it fails.
func write(conn net.Conn, text string, slice func() int) {
	for text != "" {
		n := min(slice(), len(text))
		if _, err := io.WriteString(conn, text[:n]); err != nil {
			return
		}
		text = text[n:]
	}
}

// A sample is a request and the message that it has to become.
type sample struct {
	request, id, body string
	properties        map[string]any
}

// headLike is a body that resembles the head of a request, in another spelling.
const headLike = "\r\n\r\nPOST /orders/messages HTTP/1.1\r\nHost: h\r\nORDERID: %d\r\nContent-Length: 0\r\n\r\n"

// randomSample is a send with one property, spelled at random, and a body that net/http has
// to find its way through.
func randomSample(rng *rand.Rand, i int, id string) sample {
	name := []byte("orderid")
	for j := range name {
		if rng.IntN(2) == 0 {
			name[j] -= 'a' - 'A'
		}
	}
	s := sample{id: id, properties: map[string]any{string(name): int32(i)}}
	if rng.IntN(4) > 0 {
		s.body = strings.Repeat(fmt.Sprintf(headLike, i), 1+rng.IntN(4))
		if rng.IntN(16) == 0 {
			s.body += strings.Repeat("x", rng.IntN(10000)) // past any buffer
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%sBrokerProperties: {\"MessageId\":%q}\r\n%s: %d\r\n", postLine, id, name, i)
	if rng.IntN(8) == 0 {
		b.WriteString("Expect: 100-continue\r\n")
	}
	if rng.IntN(2) == 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(s.body), s.body)
	} else {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for rest := s.body; rest != ""; {
			n := 1 + rng.IntN(len(rest))
			fmt.Fprintf(&b, "%x%s\r\n%s\r\n", n, []string{"", ";orderID", " \t"}[rng.IntN(3)], rest[:n])
			rest = rest[n:]
		}
		b.WriteString([]string{"0\r\n\r\n", "000;e=f\r\n\r\n", "0\r\norderID: 99\r\nother: x\r\n\r\n"}[rng.IntN(3)])
	}
	if rng.IntN(8) == 0 {
		b.WriteString("\r\n") // old clients write a line break behind a body that its length leaves out
	}
	s.request = b.String()
	return s
}

// Requests follow each other on a connection, some of them before the answer to the last
// one; others come between that are no send.
func TestEveryRequestOfAConnectionHasItsOwnSpelling(t *testing.T) {
	seed := testseed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		const conns, groups = 4, 20
		want := map[string]sample{}
		ended := make(chan error, conns)
		for c := range conns {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			conn := sc.connectOrServe(c)
			var batches [][]sample
			for i := range groups {
				batch := make([]sample, 1+rng.IntN(4))
				for j := range batch {
					if rng.IntN(6) == 0 {
						batch[j].request = []string{
							"GET / HTTP/1.1\r\nHost: h\r\norderId: 7\r\n\r\n",
							"OPTIONS * HTTP/1.1\r\nHost: h\r\norderId: 7\r\n\r\n",
							"PUT /orders HTTP/1.1\r\nHost: h\r\norderId: 7\r\nContent-Length: 3\r\n\r\nabc",
						}[rng.IntN(3)]
						continue
					}
					batch[j] = randomSample(rng, i*10+j, fmt.Sprintf("%d-%d-%d", c, i, j))
					want[batch[j].id] = batch[j]
				}
				batches = append(batches, batch)
			}
			go func() { ended <- converse(conn, batches, rng) }()
		}
		for range conns {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		held := sc.held()
		if len(held) != len(want) {
			t.Errorf("%d messages were sent, want %d", len(held), len(want))
		}
		for _, m := range held {
			s := want[m.Broker.MessageID]
			if diff := cmp.Diff(s.properties, m.Properties); diff != "" || string(m.Body) != s.body {
				t.Errorf("message %s with a body of %d, want %d; properties (-want +got):\n%s", m.Broker.MessageID, len(m.Body), len(s.body), diff)
			}
		}
	})
}

// converse writes one batch after the other in slices of any size, and reads as many answers.
func converse(conn net.Conn, batches [][]sample, rng *rand.Rand) error {
	in := bufio.NewReader(conn)
	// One writer: what follows a body may still be on its way when the answer is here.
	texts := make(chan func(), len(batches))
	defer close(texts)
	go func() {
		for f := range texts {
			f()
		}
	}()
	for _, batch := range batches {
		var text strings.Builder
		for _, s := range batch {
			text.WriteString(s.request)
		}
		size := 1 + rng.IntN(1<<rng.IntN(14))
		texts <- func() { write(conn, text.String(), func() int { return size }) }
		for _, s := range batch {
			status, body, err := apptest.Answered(in)
			if err != nil {
				return err
			}
			if (status == http.StatusCreated) != (s.id != "") {
				return fmt.Errorf("status %d %s for %q", status, body, s.request)
			}
		}
	}
	return nil
}

// Once the splitter is not sure, headers are spelled as net/http spells them, until the connection
// ends: the next request must not be taken for it.
func TestADoubtfulRequestIsSpelledAsHTTPSpellsIt(t *testing.T) {
	const plain = postLine + "orderId: 7\r\n\r\n"
	for name, request := range map[string]string{
		"folded line":                   postLine + "orderId: 7\r\n and more\r\n\r\n",
		"folded line that looks whole":  postLine + "orderId: 7\r\n ORDERID: 7\r\n\r\n",
		"chunks and a length":           postLine + "orderId: 7\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n0\r\n\r\n",
		"a length that is stated twice": postLine + "orderId: 7\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"chunks of HTTP 1.0":            "POST /orders/messages HTTP/1.0\r\nConnection: keep-alive\r\norderId: 7\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t)
				conn := sc.serve()
				in := bufio.NewReader(conn)
				for _, text := range []string{plain, request, plain} {
					go write(conn, text, func() int { return len(text) })
					if status, body := sc.answered(in); status != http.StatusCreated {
						t.Fatalf("status %d %s, want 201", status, body)
					}
				}
				for i, m := range sc.held() {
					want := "Orderid"
					if i == 0 {
						want = "orderId"
					}
					if _, ok := m.Properties[want]; !ok || len(m.Properties) != 1 {
						t.Errorf("message %d has the properties %v, want only %s", i, m.Properties, want)
					}
				}
			})
		})
	}
}

// Serve needs hooks of the server, which may have been given some. Memory for a large head is free
// again while the connection is idle.
func TestServeMindsWhatTheServerWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		type key struct{}
		var states []http.ConnState
		kept := -1
		conn := sc.serve(func(s *http.Server) {
			s.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "theirs") }
			s.ConnState = func(c net.Conn, state http.ConnState) {
				states = append(states, state)
				if sc, ok := c.(*spelledConn); ok && state == http.StateIdle {
					kept = cap(sc.requests.head) + cap(sc.requests.next)
				}
			}
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Theirs", fmt.Sprint(r.Context().Value(key{})))
				sc.ServeHTTP(w, r)
			})
		})
		text := postLine + "orderId: 7\r\nlarge: " + strings.Repeat("x", 30000) + "\r\n\r\n"
		go write(conn, text, func() int { return len(text) })
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Theirs"); resp.StatusCode != http.StatusCreated || got != "theirs" {
			t.Errorf("status %d with the header %q, want 201 from the server's handler, which sees its own context", resp.StatusCode, got)
		}
		synctest.Wait()
		if diff := cmp.Diff([]http.ConnState{http.StateNew, http.StateActive, http.StateIdle}, states); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		if kept < 0 || kept > 2*keptHead {
			t.Errorf("an idle connection keeps %d bytes, want at most %d", kept, 2*keptHead)
		}
		if _, ok := sc.held()[0].Properties["orderId"]; !ok {
			t.Error("the property orderId is not there")
		}
	})
}

// A connection that was taken over speaks another protocol, in which nothing is a request,
// however much comes.
func TestAConnectionThatWasTakenOverIsNoLongerFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		taken := make(chan net.Conn, 1)
		conn := sc.serve(func(s *http.Server) {
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
				}
				taken <- c
			})
		})
		go write(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", func() int { return 1 << 20 })
		theirs := <-taken
		text := strings.Repeat("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", 2000)
		go write(conn, text, func() int { return 1000 })
		got := make([]byte, len(text))
		if _, err := io.ReadFull(theirs, got); err != nil || string(got) != text {
			t.Errorf("read %d bytes, %v; want what was written", len(got), err)
		}
		if sp, ok := theirs.(*spelledConn); !ok || sp.requests.part != lost || sp.requests.next != nil {
			t.Errorf("the connection is a %T that is still followed", theirs)
		}
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A connection of TLS shows as one, in requests and in what is made of them.
func TestServeShowsTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, secure := range []bool{false, true} {
			client, server := net.Pipe()
			ln := &oneConn{conn: server, closed: make(chan struct{})}
			if secure {
				ln.conn = secureConn{server}
			}
			type seen struct {
				tls      bool
				property any
			}
			got := make(chan seen, 1)
			s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ms, _, err := ParseSend(r, nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				got <- seen{r.TLS != nil, ms[0].Properties["orderId"]}
			})}
			done := make(chan error, 1)
			go func() { done <- Serve(s, ln) }()
			go write(client, "GET / HTTP/1.1\r\nHost: h\r\norderId: 7\r\n\r\n", func() int { return 1 << 20 })
			if got, want := <-got, (seen{secure, int32(7)}); got != want {
				t.Errorf("the handler saw %+v, want %+v", got, want)
			}
			if _, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			<-done
		}
	})
}

type secureConn struct{ net.Conn }

func (secureConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

// A oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }
