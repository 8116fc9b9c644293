// SPDX-License-Identifier: Apache-2.0

// Package listener serves every protocol of Service Bus on one port. It recognizes the
// protocol by the first bytes:
//
//	first byte ─┬─ 0x16     ▶ TLS, then the first byte inside
//	            ├─ a letter ▶ HTTP ─┬─ /$servicebus/websocket ▶ AMQP over WebSocket
//	            │                   └─ the rest               ▶ Config.HTTP
//	            └─ the rest ▶ AMQP, Config.AMQP
//
// Four bytes distinguish the AMQP header from an HTTP method that begins with A.
// Anything else goes to AMQP, which answers a wrong header as its standard says.
//
// # Bounds
//
// Accepting never waits for a client. A client has Config.FirstByteTimeout to
// show its protocol, TLS handshake included. Config.MaxConns bounds the connections
// of all protocols together. Request heads are bounded in size and time, and each
// write of a response in time; Config.HTTP bounds bodies. A WebSocket message may have
// any length, because it is read as a stream, and the reader bounds its AMQP frames.
//
// If tokens are required (not Config.Open), a connection belongs to
// accept.Unauthenticated from its first byte to its first valid token, with any
// protocol. Otherwise it belongs there until its protocol is known.
//
// # Browsers
//
// Any web page can make a browser reach a listener on loopback, or in a container. So a
// listener that requires no tokens refuses requests that a page of another machine caused,
// or could have: see fromOtherPage and mayRebind.
package listener
