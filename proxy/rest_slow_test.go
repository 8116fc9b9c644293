// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A thousand uploads state a megabyte each, send a little and then a byte every second: sends,
// batches and relayed requests. They delay no other send, and occupy little memory.
func TestUploadsThatDribbleHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, upstreamSays(func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}))
		sc.warm()
		const uploads = 1000
		var dribbles sync.WaitGroup
		defer dribbles.Wait()
		for i := range uploads {
			request := []string{
				"POST /orders/messages HTTP/1.1\r\n",
				"POST /orders/messages HTTP/1.1\r\nContent-Type: application/vnd.microsoft.servicebus.json\r\n",
				"PUT /orders HTTP/1.1\r\n",
			}[i%3]
			nc, err := sc.dial(t.Context())
			sc.must(err)
			defer nc.Close()
			_, err = fmt.Fprintf(nc, "%sHost: endpoint\r\nContent-Length: 1000000\r\n\r\n[", request)
			sc.must(err)
			dribbles.Go(func() {
				for err == nil { // until it has been answered, and the connection closed
					time.Sleep(time.Second)
					_, err = nc.Write([]byte(" "))
				}
			})
		}
		synctest.Wait()
		if n, most := sc.proxy.bodies.Used(), int64(uploads*4<<10); n > most {
			t.Errorf("%d bytes are taken for %d bytes that came, want at most %d", n, uploads, most)
		}
		if n := len(sc.proxy.relays); n != 0 {
			t.Errorf("%d of the places for relayed requests are taken by bodies that do not come, want none", n)
		}
		c := sc.browser()
		for range 10 {
			start := time.Now()
			sc.wantAnswer("a send", sc.ask(c, "POST", "/orders/messages", "hello"), http.StatusCreated, "")
			sc.wantAnswer("a relayed request", sc.ask(c, "PUT", "/q", `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"></QueueDescription></content></entry>`), http.StatusOK, "")
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("requests took %v while uploads dribble, want no more than 100 ms", took)
			}
			time.Sleep(time.Second)
		}
	})
}
