// SPDX-License-Identifier: Apache-2.0

// Package amqp is a codec for AMQP 1.0 (ISO/IEC 19464): bytes to values and back. It has no
// socket, no goroutine and no clock, and knows nothing of Service Bus.
//
// # Reading
//
// A Reader is a cursor whose first error sticks. It skips and slices any value where it stands,
// and reads it by its type or, with Value, as whatever it is. FrameReader cuts a stream into
// frames, DecodePerformative and Decoder read what a frame carries, ParseMessage cuts a message
// into sections without copying, and MapLookup and ListField find one value in a section.
//
// Input is believed in nothing. A length is compared with the bytes that are left before it is
// used, an element is counted before memory is allocated for it, and nesting is bounded by
// MaxDepth; elements that take no bytes are bounded by MaxZeroWidth. All widths of a type are
// accepted, field lists may be short or long, and descriptors may be numbers or names. Strings have
// to be UTF-8 and symbols ASCII where they are read; where they are only passed on they are not
// looked at.
//
// What a performative decodes to shares no memory with its frame, but for the delivery tag of a
// transfer and the payload. What a Reader slices, and the sections of a Message, always do.
//
// # Writing
//
// The Append functions append to a slice and return it, in the smallest width there is.
// Descriptors are numbers and field lists are written in full, because there are clients that
// understand nothing else. Fields that nobody here interprets are kept Raw and written as they
// came, so that a performative can be decoded, changed in one field and sent on.
//
// # Hot path
//
// Reading a frame, decoding a transfer, disposition or flow with a Decoder, parsing a message,
// looking up a value and appending any of them allocate nothing.
package amqp
