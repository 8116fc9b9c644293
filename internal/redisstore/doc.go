// SPDX-License-Identifier: Apache-2.0

// Package redisstore keeps in Redis what the processes of one fleet share. A fleet is the processes
// that use one monitor queue of one namespace.
//
// Redis is never the truth. It may lose everything that is kept here at any instant. The loss costs
// operations, or one notification more. Companions are the exception: where an operator configures
// it, they wait here instead of on the monitor queue.
//
// Each use has a circuit of its own. When Redis fails a use, the circuit opens for a while, and the
// process goes on alone. Companions have no circuit, because a process cannot go on without them.
// Every call is bounded in time. commands.go has every command that is ever sent to Redis.
package redisstore
