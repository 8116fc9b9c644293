// SPDX-License-Identifier: Apache-2.0

// Package proxy provides the AMQP and REST endpoints that apps send through. Apps use them like
// Service Bus. For each message with a deadline, the proxy schedules a companion on the monitor queue.
//
//	POST /{entity}/messages ──▶ request ──┐
//	                                      ├─▶ send ─┬─▶ work message ─▶ the entity
//	AMQP 1.0 ─▶ internal/amqp/relay ─▶ delivery ┘   └─▶ companion ────▶ scheduler
//
// A send is a value with a state. An endpoint begins it. Answers of the broker and of the monitor
// queue move it on, by one table (send_state.go):
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
// If the companion fails while the message is in flight, the state is unscheduled until the broker has
// settled the message. A send is acknowledged when the work message and its companion are accepted.
//
// The AMQP endpoint relays all frames. It decodes the messages of links that send to a monitored
// entity (amqp_link.go), completes them in place (amqp_message.go), and makes each delivery a send
// (amqp_delivery.go). The REST endpoint relays every request that is not a send (rest_relay.go).
// Neither endpoint gives access to the monitor queue.
//
// A message arrives as the app sent it, body and properties, with the case of their names. Only a
// message with a deadline changes. It gets a TTL if its deadline comes before the end of its own,
// and a message-id if it has none and its companion has to name it. A slot names none.
//
// The deadline of a message is the first of these that it has: the property overdue-deadline or
// overdue-within, CloudEvents' ce-expirytime, its TTL, its entity's configured deadline, its
// entity's default TTL. The property overdue-complete-within, or completeWithin of its entity,
// states when a consumer must have completed it (completion.go). The clock of the broker counts
// (deadline.go).
package proxy
