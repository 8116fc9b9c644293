// SPDX-License-Identifier: Apache-2.0

// Package proxy is the front door: an app sends through it as it would send to Service
// Bus, and every message that has a deadline leaves a companion on the monitor queue.
//
//	POST /{entity}/messages ─▶ rest ─┐
//	                                 ├─▶ send ─┬─▶ work message ─▶ the entity
//	AMQP 1.0 ──▶ internal/amqp/relay ─────┘         └─▶ companion ────▶ scheduler
//
// Through the AMQP door everything passes, performative by performative; what sends to a monitored entity
// is watched on the way (amqp_link.go), completed in place (amqp_message.go) and answered when
// its companion is accepted (amqp_held.go).
//
// Through the REST door every request that is not a send passes too, and its answer comes back as it is written
// (relay.go). What would touch the monitor queue passes neither door.
//
// Drop-in means: the app changes its endpoint and nothing else. What it sends arrives as
// it was sent, body and properties, names included: sbrest.Serve reads the connections along with
// net/http, which would spell them its own way. The codes and the errors are those of the
// Service Bus REST API. Two things are added, and only to a message with a deadline: a TTL where
// the deadline comes before the one that it has, and a message-id where it has none.
//
// A message states its deadline, first match wins, by the property overdue-deadline
// or overdue-within, by CloudEvents' ce-expirytime, by its TTL, or not at all: then the entity's
// configured deadline and its default TTL apply. By overdue-complete-within, or its entity's completeWithin, it states
// a second one, or that one alone (second.go). All are relative to the broker's clock;
// deadline.go has the arithmetic. A send is acknowledged when the work message and its
// companion are both accepted, and send.go is the one path that sees to it.
package proxy
