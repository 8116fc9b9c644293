// SPDX-License-Identifier: Apache-2.0

// Package listener is a port for everything that clients of Service Bus speak, told
// by their first bytes:
//
//	first byte ─┬─ 0x16     ▶ TLS, then the first byte inside
//	            ├─ a letter ▶ HTTP ─┬─ /$servicebus/websocket ▶ AMQP over WebSocket
//	            │                   └─ the rest               ▶ Config.HTTP
//	            └─ the rest ▶ AMQP, Config.AMQP
//
// No method of HTTP begins with the A of the AMQP header; should one ever, four
// bytes tell. What is neither goes to AMQP, whose answer to a wrong header is
// the right one.
//
// # Bounds
//
// Accepting never waits for a client. A client has Config.FirstByteTimeout to
// say what it speaks, handshake of TLS included, and there are at most
// Config.MaxConns of them, whatever they speak. Heads of requests are bounded in
// size and time, each write of an answer in time; bodies are up to Config.HTTP. A
// WebSocket message may be of any length, because nothing ever holds one: what it
// carries is a stream, and the frames of AMQP in it are bounded by who reads them.
//
// Where tokens are asked for (not Config.Open), a connection is one of the
// accept.Strangers from its first byte to its first good token, over whatever it
// comes. Where none are, it is one until it is known what it speaks.
//
// # Browsers
//
// A door that asks for no keys is open to whoever reaches it, and any web page can
// make a browser reach what listens on loopback. So where nobody has to show a
// token, requests that a page of another machine has caused are refused: see
// fromElsewhere.
package listener
