// SPDX-License-Identifier: Apache-2.0

// Package amqp is a codec for AMQP 1.0 (ISO/IEC 19464): bytes to values and back. It has no socket,
// no goroutine and no clock, and knows nothing about Service Bus.
//
// # Reading
//
// A Reader is a cursor whose first error sticks. It skips and slices any value in place, and reads
// it as a given type or, with Value, as any type. FrameReader cuts a stream into frames,
// DecodePerformative and Decoder read the content of a frame, and ParseMessage cuts a message into
// sections without copying. MapLookup and ListField find one value in a section.
//
// The package trusts no input. A length is compared with the remaining bytes before it is used, and
// an element is counted before memory is allocated for it. MaxDepth bounds nesting; MaxZeroWidth
// bounds elements that take no bytes. All widths of a type are accepted, field lists may be short
// or long, and descriptors may be numbers or names. Strings have to be UTF-8 and symbols ASCII
// where they are read; where they are only passed on they are not checked.
//
// A decoded performative shares no memory with its frame, except the delivery tag of a transfer and
// the payload. Slices of a Reader, and the sections of a Message, always alias their input.
//
// # Writing
//
// The Append functions append to a slice and return it, in the smallest possible width. Descriptors
// are numbers and field lists are written in full, because some clients understand nothing else.
// Fields that this package does not interpret stay Raw and are written unchanged, so that a
// performative can be decoded, changed in one field and sent on.
//
// # Hot path
//
// Reading a frame, decoding a transfer, disposition or flow with a Decoder, parsing a message,
// looking up a value and appending any of them allocate nothing.
package amqp
