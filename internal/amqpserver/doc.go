// SPDX-License-Identifier: Apache-2.0

// Package amqpserver is AMQP 1.0 seen from the server: the state machines of connections, sessions and links, without
// a word of what the messages mean. A Handler gives them a meaning.
package amqpserver
