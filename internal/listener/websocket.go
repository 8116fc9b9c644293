// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"overdue/internal/listener/accept"
)

// WebSocketPath is the path of AMQP over WebSocket, compared without case.
const WebSocketPath = "/$servicebus/websocket"

// subprotocols are the names of AMQP over WebSocket: the one of the Service Bus SDKs, and
// the one of the standard, which Go programs use.
var subprotocols = []string{"AMQPWSB10", "amqp"}

// errNoSubprotocol is the answer to a client that offers no known subprotocol.
const errNoSubprotocol = "The WebSocket subprotocol is not supported. Use AMQPWSB10 or amqp."

// serveWebSocket upgrades a request to an AMQP connection and serves it until it ends. It
// answers pings but sends none: clients that need keep-alives request those of AMQP, which
// pass every proxy as data.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" && !offersAMQP(r) {
		http.Error(w, errNoSubprotocol, http.StatusBadRequest)
		return
	}
	// serveHTTP has checked the origin.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: subprotocols, InsecureSkipVerify: true})
	if err != nil {
		s.log(fmt.Errorf("listener: connection from %s: %w", r.RemoteAddr, err))
		return
	}
	// The context of the request would end the connection at Shutdown.
	ctx, cut := context.WithCancel(context.WithoutCancel(r.Context()))
	stream := wsConn{websocket.NetConn(ctx, ws, websocket.MessageBinary), cut, quotaOf(r)}
	err = s.cfg.AMQP(stream)
	cut()
	// Both sides have ended AMQP, so close the WebSocket. The client may be gone; Close waits at
	// most five seconds for its answer.
	_ = ws.Close(websocket.StatusNormalClosure, "")
	_ = stream.SetDeadline(time.Time{}) // its timers would outlive it
	if err != nil && !s.conns.Closed() && !errors.Is(err, net.ErrClosed) {
		s.log(err)
	}
}

// offersAMQP reports whether the client offers a known subprotocol.
func offersAMQP(r *http.Request) bool {
	for _, name := range subprotocols {
		if hasToken(r.Header.Values("Sec-WebSocket-Protocol"), name) {
			return true
		}
	}
	return false
}

// A wsConn closes at once, without a closing handshake, as AMQP servers expect. Close ends
// a Read or Write in progress, and with it the connection. If there is none,
// serveWebSocket can still do the handshake.
type wsConn struct {
	net.Conn
	cut   context.CancelFunc
	quota *accept.Quota
}

// Quota returns the quota of the connection.
func (c wsConn) Quota() *accept.Quota { return c.quota }

func (c wsConn) Close() error {
	c.cut()
	return nil
}

// hasToken reports whether one of the comma-separated lists has token, compared
// without case.
func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for t := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
