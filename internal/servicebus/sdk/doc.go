// SPDX-License-Identifier: Apache-2.0

// Package sdk keeps a client of the Service Bus SDK that works.
//
// The SDK recovers from most of what happens to a connection, and from some of it never. The SDK
// takes some conditions with which a broker closes a connection for answers to an operation. One is
// amqp:unauthorized-access, when a stall has kept the first token from coming in time. Such a
// connection stays the client's connection for good: every operation fails with the condition that
// closed it. A link that was detached because its queue is gone stays the sender's link, also when
// the queue is there again. And a call that waits for an answer that does not come, with a lock of
// the SDK held, keeps all others waiting beyond their contexts.
//
// A [Client] hears how operations end, and replaces the SDK's client where it cannot recover. A
// [Sender] does that for the links of one entity.
package sdk
