// SPDX-License-Identifier: Apache-2.0

// Package amqp is a codec for AMQP 1.0 (ISO/IEC 19464): bytes to values and back. It has no
// socket, no goroutine and no clock, and knows nothing of Service Bus.
package amqp
