// SPDX-License-Identifier: Apache-2.0

// Package proxy is the front door: an app sends through it as it would send to Service
// Bus, and every message that has a deadline leaves a companion on the monitor queue.
//
//	POST /{entity}/messages ─▶ rest ─┐
//	                                 ├─▶ send ─┬─▶ work message ─▶ the entity
//	AMQP 1.0 (a later door) ─────────┘         └─▶ companion ────▶ scheduler
//
// Drop-in means: the app changes its endpoint and nothing else. What it sends arrives as
// it was sent, body and properties, names included: Serve reads the connections along with
// net/http, which would spell them its own way. The codes and the errors are those of the
// Service Bus REST API. Two things are added, and only to a message with a deadline: a TTL where
// the deadline comes before the one that it has, and a message-id where it has none.
//
// A message states its deadline, first match wins, by the property overdue-deadline
// or overdue-within, by CloudEvents' ce-expirytime, by its TTL, or not at all: then the entity's
// configured deadline and its default TTL apply. All are relative to the broker's clock;
// deadline.go has the arithmetic. A send is acknowledged when the work message and its
// companion are both accepted, and send.go is the one path that sees to it.
package proxy
