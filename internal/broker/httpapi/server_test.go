// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"crypto/tls"
	"encoding/xml"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/listener"
)

// exchange sends a large message and a small one and receives both.
func (sc *scene) exchange(client *azservicebus.Client) {
	t := sc.t
	t.Helper()
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("0123456789abcdef", 10_000) // several frames
	for _, body := range []string{large, "small"} {
		if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(body)}, nil); err != nil {
			t.Fatalf("SendMessage = %v", err)
		}
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{large, "small"} {
		ms, err := receiver.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatalf("ReceiveMessages = %v", err)
		}
		if got := string(ms[0].Body); got != want {
			t.Fatalf("received %d bytes, want %d", len(got), len(want))
		}
		if err := receiver.CompleteMessage(t.Context(), ms[0], nil); err != nil {
			t.Fatalf("CompleteMessage = %v", err)
		}
	}
}

func TestTheSDKConnectsInEveryWay(t *testing.T) {
	for name, way := range map[string]func(*scene, *tls.Config) dialer{
		"AMQP":                       func(sc *scene, _ *tls.Config) dialer { return sc.plain },
		"AMQP over TLS":              func(sc *scene, client *tls.Config) dialer { return sc.overTLS(client) },
		"WebSocket amqp":             func(sc *scene, _ *tls.Config) dialer { return sc.overWebSocket("ws", "amqp", nil) },
		"WebSocket AMQPWSB10":        func(sc *scene, _ *tls.Config) dialer { return sc.overWebSocket("ws", "AMQPWSB10", nil) },
		"WebSocket over TLS":         func(sc *scene, client *tls.Config) dialer { return sc.overWebSocket("wss", "amqp", client) },
		"WebSocket, another letters": func(sc *scene, client *tls.Config) dialer { return sc.overWebSocket("wss", "amqpwsb10", client) },
	} {
		t.Run(name, func(t *testing.T) {
			certificate := selfMade(t)
			sc := setupTCP(t, broker.Config{AutoCreate: true}, func(c *Config) { c.TLS = certificate.TLS })
			sc.exchange(sc.client(connectionString, way(sc, trust(t, certificate))))
		})
	}
}

func TestWebSocketSubprotocolsThatAreNotAMQPAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for _, offered := range [][]string{nil, {"mqtt"}, {"amqp2", "soap"}} {
			_, response, err := websocket.Dial(t.Context(), "ws://"+host+"/$servicebus/websocket",
				&websocket.DialOptions{HTTPClient: sc.http(nil), Subprotocols: offered})
			if err == nil || response == nil || response.StatusCode != http.StatusBadRequest {
				t.Errorf("Dial with %q = %v, %v, want status 400", offered, response, err)
			}
		}
	})
}

func TestATextMessageEndsTheWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		ws, _, err := websocket.Dial(t.Context(), "ws://"+host+"/$servicebus/websocket",
			&websocket.DialOptions{HTTPClient: sc.http(nil), Subprotocols: []string{"amqp"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.Write(t.Context(), websocket.MessageText, []byte("AMQP\x00\x01\x00\x00")); err != nil {
			t.Fatal(err)
		}
		_, _, err = ws.Read(t.Context())
		if got := websocket.CloseStatus(err); got != websocket.StatusUnsupportedData {
			t.Errorf("Read = %v, want status %d", err, websocket.StatusUnsupportedData)
		}
	})
}

func TestPingsAreAnsweredAndTheEndIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		ws, _, err := websocket.Dial(t.Context(), "ws://"+host+"/$servicebus/websocket",
			&websocket.DialOptions{HTTPClient: sc.http(nil), Subprotocols: []string{"amqp"}})
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		var answer []byte
		go func() { // a reader handles pongs
			for {
				_, b, err := ws.Read(t.Context())
				answer = append(answer, b...)
				if err != nil {
					read <- err
					return
				}
			}
		}()
		if err := ws.Ping(t.Context()); err != nil {
			t.Errorf("Ping = %v, want nil", err)
		}
		out := append([]byte(nil), amqp.ProtoAMQP[:]...)
		out = amqp.AppendFrame(out, 0, &amqp.Open{ContainerID: "c", MaxFrameSize: 512}, nil)
		out = amqp.AppendFrame(out, 0, &amqp.Close{}, nil)
		if err := ws.Write(t.Context(), websocket.MessageBinary, out); err != nil {
			t.Fatal(err)
		}
		if err := <-read; websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("after close: %v, want status %d", err, websocket.StatusNormalClosure)
		}
		if !strings.HasPrefix(string(answer), string(amqp.ProtoAMQP[:])) {
			t.Errorf("answer begins with % x, want the header of AMQP", answer[:min(8, len(answer))])
		}
	})
}

func TestAnOpenBrokerRefusesPagesOfOtherMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for origin, want := range map[string]int{
			"":                        http.StatusOK,
			"http://localhost:3000":   http.StatusOK,
			"http://app.localhost":    http.StatusOK,
			"https://127.8.8.8":       http.StatusOK,
			"http://[::1]:9":          http.StatusOK,
			"https://example.com":     http.StatusForbidden,
			"http://localhost.evil":   http.StatusForbidden,
			"null":                    http.StatusForbidden,
			"http://192.168.1.1:5672": http.StatusForbidden,
			"http://evil/localhost":   http.StatusForbidden,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			if got := sc.do(r).StatusCode; got != want {
				t.Errorf("status for origin %q = %d, want %d", origin, got, want)
			}
		}
	})
}

// A page can read what its own name leads to, so that must not be this broker.
func TestAnOpenBrokerOnLoopbackGoesByLocalNames(t *testing.T) {
	certificate := selfMade(t)
	sc := setupTCP(t, broker.Config{AutoCreate: true}, func(c *Config) {
		c.TLS = certificate.TLS
		c.Hosts = []string{"Broker.Contoso.example"}
	})
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"host.docker.internal:5300": http.StatusOK, "sb.local": http.StatusOK, "sb.test": http.StatusOK, "SB.HOME.ARPA": http.StatusOK, "overdue.team.svc": http.StatusOK,
		"192.168.1.20:5300": http.StatusOK, "broker.contoso.EXAMPLE:5300": http.StatusOK, own: http.StatusOK,
		"internal.example.com": http.StatusForbidden, "evilinternal.com": http.StatusForbidden, "127.0.0.1.example.com": http.StatusForbidden, "evil.example.com.": http.StatusForbidden,
		"localhost:5672": http.StatusOK, "orders.localhost": http.StatusOK, "127.0.0.1:5672": http.StatusOK, "[::1]:5672": http.StatusOK, "broker:5672": http.StatusOK,
		"evil.example.com": http.StatusForbidden, "evil.example.com:5672": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
	} {
		for scheme, want := range map[string]int{"http": want, "https": http.StatusOK} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+host+"/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = name
			response, err := sc.http(trust(t, certificate)).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if got := response.StatusCode; got != want {
				t.Errorf("status over %s for the name %s = %d, want %d", scheme, name, got, want)
			}
		}
	}
}

// The browser says whose page makes a request.
func TestAnOpenBrokerTakesChangesFromPagesOfItsOwn(t *testing.T) {
	sc := setupTCP(t, broker.Config{AutoCreate: true}, func(*Config) {})
	for name, c := range map[string]struct {
		host, origin, site string
		want               int
	}{
		"no browser":                       {"localhost", "", "", http.StatusCreated},
		"its own page":                     {"host.docker.internal:5300", "http://host.docker.internal:5300", "same-origin", http.StatusCreated},
		"its own page in an older browser": {"host.docker.internal:5300", "http://host.docker.internal:5300", "", http.StatusCreated},
		"another page of this machine":     {"localhost", "http://localhost:3000", "same-site", http.StatusCreated},
		"another page of the network":      {"sb.local", "http://router.local", "cross-site", http.StatusForbidden},
		"a page of another machine":        {"localhost", "https://example.com", "cross-site", http.StatusForbidden},
		"a page that hides its origin":     {"localhost", "null", "cross-site", http.StatusForbidden},
		"a page without an origin":         {"localhost", "", "cross-site", http.StatusForbidden},
		"a page whose name rebinds":        {"evil.example.com", "http://evil.example.com", "same-origin", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/orders/messages", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		for header, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		if got := sc.do(r).StatusCode; got != c.want {
			t.Errorf("%s: a send is answered with %d, want %d", name, got, c.want)
		}
	}
}

// do sends r and reads the answer to its end.
func (sc *scene) do(r *http.Request) *http.Response {
	sc.t.Helper()
	response, err := sc.http(nil).Do(r)
	if err != nil {
		sc.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		sc.t.Fatal(err)
	}
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	return response
}

func (sc *scene) get(path string) (int, string) {
	sc.t.Helper()
	r, err := http.NewRequestWithContext(sc.t.Context(), http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		sc.t.Fatal(err)
	}
	response := sc.do(r)
	body, _ := io.ReadAll(response.Body) // a string
	return response.StatusCode, string(body)
}

func TestHealthIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		if status, body := sc.get("/health"); status != http.StatusOK || !strings.Contains(body, `"status":"healthy"`) {
			t.Errorf("GET /health = %d %s, want 200 and healthy", status, body)
		}
		sc.server.Drain()
		if status, body := sc.get("/health"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"status":"unhealthy"`) {
			t.Errorf("GET /health while draining = %d %s, want 503 and unhealthy", status, body)
		}
	})
}

func TestThePortSaysWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		status, body := sc.get("/")
		if status != http.StatusOK {
			t.Errorf("GET / = %d, want 200", status)
		}
		for _, want := range []string{"Overdue v1.2.3", "sb://" + host, "/health", "UseDevelopmentEmulator=true"} {
			if !strings.Contains(body, want) {
				t.Errorf("GET / says nothing of %q:\n%s", want, body)
			}
		}
		// Clients that ask for an entity without a name read it, as they read the service's.
		for _, query := range []string{"", "?api-version=2021-05"} {
			_, body := sc.get("/" + query)
			var feed struct {
				XMLName xml.Name `xml:"http://www.w3.org/2005/Atom feed"`
				Title   string   `xml:"title"`
				Entries []string `xml:"entry"`
			}
			if err := xml.Unmarshal([]byte(body), &feed); err != nil || feed.Title != "Publicly Listed Services" || len(feed.Entries) != 0 {
				t.Errorf("GET /%s = %v, %+v; want the feed of the public services, which is empty", query, err, feed)
			}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := sc.do(r).StatusCode; got != http.StatusBadRequest {
			t.Errorf("POST / = %d, want 400", got)
		}
	})
}

func FuzzFirstBytes(f *testing.F) {
	for _, s := range []string{"AMQP\x00\x01\x00\x00", "AMQP\x03\x01\x00\x00", "\x16\x03\x01\x00\x05hello", "GET /health HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n\x82\x88\x00\x00\x00\x00AMQP\x00\x01\x00\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		f.Add([]byte(s))
	}
	certificate, err := listener.SelfMade(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		synctest.Test(t, func(t *testing.T) {
			sc := setup(t, func(c *Config) {
				c.TLS = certificate.TLS
				c.ErrorLog = nil
			})
			c := sc.dial()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, c) // whatever it answers
			}()
			_, _ = c.Write(says) // it may have hung up by then
			c.Close()
			<-done
			if status, _ := sc.get("/health"); status != http.StatusOK {
				t.Errorf("GET /health afterwards = %d, want 200", status)
			}
		})
	})
}

func TestEntitiesAreAdministeredOverTheSamePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for _, path := range []string{"/health?api-version=2024-05", "/orders?api-version=2024-05", "/$Resources/Queues?api-version=2024-05"} {
			if status, body := sc.get(path); status != http.StatusOK || !strings.Contains(body, "http://www.w3.org/2005/Atom") {
				t.Errorf("GET %s = %d %.100s, want 200 and Atom", path, status, body)
			}
		}
	})
}
