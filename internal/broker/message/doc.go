// SPDX-License-Identifier: Apache-2.0

// Package message turns the bytes of a message into what a queue must know of it, and back.
//
// Read checks an encoded message that a client sends. Delivering it cannot fail after that. Append
// encodes it for a delivery or a peek: the sender's bytes stay, and the fields that only the broker
// states are laid over them. A Subject shows a message to the conditions of rules, and an Altered
// has the changes that the action of a rule makes to one copy.
package message

import "overdue/internal/amqp"

// Bounds of a message. The service documents them, not how it refuses.
const (
	MaxPropertySize = 32 << 10 // bytes of one application property
	MaxHeaderSize   = 64 << 10 // bytes of a message without its body
	MaxIDLength     = 128      // characters of a message-id, session-id or partition key
)

// CondArgumentError is the condition of Service Bus for an argument that is not valid.
const CondArgumentError amqp.Symbol = "com.microsoft:argument-error"

// PropRuleName is the property of a copy that the action of a rule has changed: the name of the
// rule.
const PropRuleName = "RuleName"
