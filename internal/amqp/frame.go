// SPDX-License-Identifier: Apache-2.0

package amqp

import "encoding/binary"

// The types of frames.
const (
	FrameAMQP byte = 0
	FrameSASL byte = 1
)

// FrameHeaderSize is the number of bytes before the body of every frame that we write.
const FrameHeaderSize = 8

// The protocol headers that open a connection or a layer of it.
var (
	ProtoAMQP = [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	ProtoTLS  = [8]byte{'A', 'M', 'Q', 'P', 2, 1, 0, 0}
	ProtoSASL = [8]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}
)

// Frame is one frame, without its header.
type Frame struct {
	Type    byte
	Channel uint16 // of no meaning in a SASL frame
	Body    []byte // aliases the reader's buffer; empty = keep-alive
}

// BeginFrame begins a frame at the end of dst. Append its body, then call EndFrame with the
// previous len(dst).
func BeginFrame(dst []byte, typ byte, ch uint16) []byte {
	const dataOffset = FrameHeaderSize / 4
	return append(dst, 0, 0, 0, 0, dataOffset, typ, byte(ch>>8), byte(ch))
}

// EndFrame writes the size of the frame that began at start.
func EndFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// AppendFrame appends an AMQP frame. A nil p makes it a keep-alive. It does not know the peer's
// max-frame-size: the caller cuts payloads to it, see Transfer.Room.
func AppendFrame(dst []byte, ch uint16, p Performative, payload []byte) []byte {
	start := len(dst)
	dst = BeginFrame(dst, FrameAMQP, ch)
	if p != nil {
		dst = append(p.Append(dst), payload...)
	}
	return EndFrame(dst, start)
}

// AppendSASLFrame appends a SASL frame.
func AppendSASLFrame(dst []byte, p Performative) []byte {
	start := len(dst)
	return EndFrame(p.Append(BeginFrame(dst, FrameSASL, 0)), start)
}
