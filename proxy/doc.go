// SPDX-License-Identifier: Apache-2.0

// Package proxy is where apps connect: an app sends through it as it would send to Service
// Bus, and every message that has a deadline leaves a companion on the monitor queue.
//
//	POST /{entity}/messages ──▶ request ──┐
//	                                      ├─▶ send ─┬─▶ work message ─▶ the entity
//	AMQP 1.0 ─▶ internal/amqp/relay ─▶ delivery ┘   └─▶ companion ────▶ scheduler
//
// A send is a value with a state. An endpoint begins it; then what the broker and the monitor
// queue say moves it on, by one table (send_state.go):
//
//	         ┌──────────── waiting ────────────┐   for settings, for a place
//	         │ companion   │ both   │ companion │ no deadline
//	         ▼ first       ▼        ▼ last      ▼
//	    scheduling     together   proving    sending
//	         │          │     │      │          │
//	scheduled│ scheduled│     │accepted         │accepted
//	         ▼          ▼     ▼      ▼          │
//	         └─▶ sending ◀┘   └─▶ sent ◀┘       │
//	                │accepted      │scheduled   │
//	                └──▶ widening ◀┴────────────┘   second companions, where the first may be too narrow
//	                        │scheduled
//	                        ▼
//	                       done ◀── rejected, not scheduled, timeout, or the connection ended
//
// Where companions fail while the message is in flight the state is unscheduled until the broker
// has settled the message.
//
// The AMQP endpoint passes everything on, performative by performative. Links that send to a
// monitored entity are watched (amqp_link.go), their messages completed in place
// (amqp_message.go), and each delivery is a send (amqp_delivery.go).
//
// The REST endpoint passes on every request that is not a send, and its answer (rest_relay.go).
// Neither endpoint lets anything touch the monitor queue.
//
// An app changes its endpoint and nothing else. What it sends arrives as it was sent, body and
// properties, names included: rest.Serve reads the connections along with net/http, which would
// spell them its own way. The codes and the errors are those of the Service Bus REST API. Two
// things are added, and only to a message with a deadline: a TTL where the deadline comes before
// the one that it has, and a message-id where it has none.
//
// A message states its deadline, first match wins, by the property overdue-deadline or
// overdue-within, by CloudEvents' ce-expirytime, by its TTL, or not at all: then the entity's
// configured deadline and its default TTL apply. With overdue-complete-within, or its entity's
// completeWithin, it states when it has to be completed, in addition or alone (completion.go). All
// are relative to the broker's clock; deadline.go has the arithmetic. A send is acknowledged when
// the work message and its companion are both accepted.
package proxy
