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

// WebSocketPath is where clients ask for AMQP over WebSocket. Compared without
// case.
const WebSocketPath = "/$servicebus/websocket"

// subprotocols are the names of AMQP over WebSocket: that of the standard, which
// users of Go give, and the one of all the SDKs of Service Bus.
var subprotocols = []string{"AMQPWSB10", "amqp"}

// errNoSubprotocol is what a client is told that speaks something else.
const errNoSubprotocol = "The WebSocket subprotocol is not supported. Use AMQPWSB10 or amqp."

// serveWebSocket turns a request into a connection of AMQP, and serves it until
// it ends. Pings of the client are answered; a client that wants to be sure of
// us asks for keep-alives of AMQP, which go through every proxy as data.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" && !offersAMQP(r) {
		http.Error(w, errNoSubprotocol, http.StatusBadRequest)
		return
	}
	// Who may come from which page has been decided.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: subprotocols, InsecureSkipVerify: true})
	if err != nil {
		s.log(fmt.Errorf("door: connection from %s: %w", r.RemoteAddr, err))
		return
	}
	// The context of the request would end this with Shutdown already.
	ctx, cut := context.WithCancel(context.WithoutCancel(r.Context()))
	stream := wsConn{websocket.NetConn(ctx, ws, websocket.MessageBinary), cut, guestOf(r)}
	err = s.cfg.AMQP(stream)
	cut()
	// Both are done with AMQP, and say so to what is below. A client that is gone does not
	// hear it; one that does not answer is left after five seconds.
	_ = ws.Close(websocket.StatusNormalClosure, "")
	_ = stream.SetDeadline(time.Time{}) // its timers would outlive it
	if err != nil && !s.conns.Closed() && !errors.Is(err, net.ErrClosed) {
		s.log(err)
	}
}

// offersAMQP reports whether the client speaks a subprotocol that is served.
func offersAMQP(r *http.Request) bool {
	for _, name := range subprotocols {
		if hasToken(r.Header.Values("Sec-WebSocket-Protocol"), name) {
			return true
		}
	}
	return false
}

// A wsConn closes at once and without a word, as who serves AMQP expects of a
// connection. What it waits for in Read or Write ends, and the connection with
// it; when it waits for nothing, serveWebSocket can still say goodbye.
type wsConn struct {
	net.Conn
	cut   context.CancelFunc
	guest *accept.Guest
}

// Guest is its place among the strangers.
func (c wsConn) Guest() *accept.Guest { return c.guest }

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
