// SPDX-License-Identifier: Apache-2.0

package amqp

// The types of frames.
const (
	FrameAMQP byte = 0
	FrameSASL byte = 1
)

// The protocol headers that open a connection or a layer of it.
var (
	ProtoAMQP = [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	ProtoTLS  = [8]byte{'A', 'M', 'Q', 'P', 2, 1, 0, 0}
	ProtoSASL = [8]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}
)

// Frame is one frame, without its header.
type Frame struct {
	Type    byte
	Channel uint16
	Body    []byte // aliases the reader's buffer; empty = keep-alive
}
