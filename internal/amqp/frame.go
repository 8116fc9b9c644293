// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

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

const (
	idleBuffer  = 512      // bytes; enough for a connection with only keep-alives
	firstBuffer = 4 << 10  // bytes; enough for a quiet one
	fastBuffer  = 64 << 10 // bytes that a busy connection reads at once
	emptyReads  = 100      // reads of nothing in a row before the source counts as broken
	quietReads  = 4        // reads in a row that fit into a smaller buffer, before the buffer shrinks
)

// fastBuffers holds the buffers of connections that have become quiet, as *[fastBuffer]byte. A
// connection with bursts takes one and returns it again and again.
var fastBuffers = sync.Pool{New: func() any { return new([fastBuffer]byte) }}

// FrameReader reads frames into one buffer that it reuses. The buffer grows with the bytes that
// have arrived, never with the size that a peer states. It never grows beyond twice the larger of
// the maximal frame size and 64 KiB. When only little arrives, such as keep-alives, it shrinks.
type FrameReader struct {
	src   io.Reader
	max   uint32
	buf   []byte
	r, w  int  // buf[r:w] holds what was read and not yet returned
	full  bool // the last read filled the buffer: there is more to come at once
	quiet int  // reads since the last that was not small
	idle  int  // reads since the last that was more than a keep-alive
}

// NewFrameReader returns a FrameReader that refuses frames of more than max bytes. It reads ahead,
// so no other code may read src afterwards.
func NewFrameReader(src io.Reader, max uint32) *FrameReader {
	return &FrameReader{src: src, max: max, buf: make([]byte, firstBuffer)}
}

// SetMax changes the maximal size of a frame, in bytes with its header. No less than
// MinMaxFrameSize is used.
func (fr *FrameReader) SetMax(max uint32) { fr.max = max }

// ReadProto reads any protocol header. It returns io.EOF when the peer ended before the first byte,
// and io.ErrUnexpectedEOF after it.
func (fr *FrameReader) ReadProto() (header [8]byte, err error) {
	if err := fr.fill(len(header)); err != nil {
		return header, err
	}
	copy(header[:], fr.buf[fr.r:])
	fr.r += len(header)
	return header, nil
}

// Next reads a frame. Its body is valid until the next call. An extended header is skipped. Next
// returns io.EOF when the source ends between frames, io.ErrUnexpectedEOF when it ends inside one,
// an error that wraps ErrFraming when the header is wrong, and the source's own errors.
func (fr *FrameReader) Next() (Frame, error) {
	if err := fr.fill(FrameHeaderSize); err != nil {
		return Frame{}, err
	}
	h := fr.buf[fr.r:]
	size := binary.BigEndian.Uint32(h)
	offset := 4 * uint32(h[4])
	switch {
	case size < FrameHeaderSize:
		return Frame{}, fmt.Errorf("%w: %d bytes long", ErrFraming, size)
	case size > max(fr.max, MinMaxFrameSize):
		return Frame{}, fmt.Errorf("%w: %d bytes long, at most %d allowed", ErrFraming, size, fr.max)
	case offset < FrameHeaderSize || offset > size:
		return Frame{}, fmt.Errorf("%w: data offset %d in a frame of %d bytes", ErrFraming, offset, size)
	case h[5] > FrameSASL:
		return Frame{}, fmt.Errorf("%w: unknown type %d", ErrFraming, h[5])
	}
	if err := fr.fill(int(size)); err != nil {
		return Frame{}, err
	}
	h = fr.buf[fr.r:] // fill may have moved it
	fr.r += int(size)
	return Frame{
		Type:    h[5],
		Channel: binary.BigEndian.Uint16(h[6:]),
		Body:    h[offset:size:size],
	}, nil
}

// Ready reports whether Next will return without reading: a whole frame is in the buffer, or the
// header of one that is too large.
func (fr *FrameReader) Ready() bool {
	n := fr.w - fr.r
	if n < FrameHeaderSize {
		return false
	}
	size := binary.BigEndian.Uint32(fr.buf[fr.r:])
	return uint64(size) <= uint64(n) || size > max(fr.max, MinMaxFrameSize)
}

// Buffered returns the number of bytes read ahead of the frames that were returned.
func (fr *FrameReader) Buffered() int { return fr.w - fr.r }

// fill reads until n bytes are in the buffer.
func (fr *FrameReader) fill(n int) error {
	for empty := 0; fr.w-fr.r < n; {
		fr.makeRoom(n)
		m, err := fr.src.Read(fr.buf[fr.w:])
		fr.w += m
		fr.full = fr.w == len(fr.buf)
		if fr.quiet++; m > firstBuffer {
			fr.quiet = 0
		}
		if fr.idle++; m > FrameHeaderSize {
			fr.idle = 0
		}
		if m > 0 {
			empty = 0
		} else if empty++; err == nil && empty >= emptyReads {
			err = io.ErrNoProgress
		}
		if errors.Is(err, io.EOF) && fr.w > fr.r {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && fr.w-fr.r < n {
			return err
		}
	}
	return nil
}

// makeRoom makes room for at least one more byte of a frame of n bytes.
func (fr *FrameReader) makeRoom(n int) {
	kept := fr.w - fr.r
	size := len(fr.buf)
	switch {
	case kept == 0 && fr.idle >= quietReads && size > idleBuffer:
		size = idleBuffer
	case kept == 0 && fr.quiet >= quietReads && size > firstBuffer:
		size = firstBuffer
	case kept == size:
		size = min(2*size, max(n, fastBuffer)) // it holds only a part of this frame
	case fr.full && size < fastBuffer:
		size = fastBuffer // more arrives than one read takes
	case fr.r > 0 && n > size-fr.r:
		copy(fr.buf, fr.buf[fr.r:fr.w])
		fr.r, fr.w = 0, kept
		return
	default:
		if kept == 0 {
			fr.r, fr.w = 0, 0
		}
		return
	}
	fr.resize(size)
}

// resize moves the unread bytes to a buffer of another size.
func (fr *FrameReader) resize(size int) {
	var buf []byte
	if size == fastBuffer {
		buf = fastBuffers.Get().(*[fastBuffer]byte)[:]
	} else {
		buf = make([]byte, size)
	}
	fr.w = copy(buf, fr.buf[fr.r:fr.w])
	old := fr.buf
	fr.buf, fr.r = buf, 0
	if len(old) == fastBuffer {
		fastBuffers.Put((*[fastBuffer]byte)(old))
	}
}

// decodable is a performative that can be read. Decode expects the descriptor first, accepts short
// field lists, and leaves the receiver in no particular state when it fails. The decoded value
// shares no memory with the input, except the DeliveryTag of a Transfer.
type decodable interface {
	Performative
	Decode(r *Reader) error
}

// DecodePerformative decodes the body of a frame, AMQP or SASL. The payload is what follows the
// performative and aliases body.
func DecodePerformative(body []byte) (p Performative, payload []byte, err error) {
	var d Decoder
	return d.Decode(body)
}

// Decoder decodes the three most frequent performatives, Transfer, Disposition and Flow, into
// structs of its own. The zero value is ready. It is not safe for concurrent use.
type Decoder struct {
	transfer    Transfer
	disposition Disposition
	flow        Flow
	reader      Reader // here, because a call through an interface moves its arguments to the heap
}

// Decode is DecodePerformative, but a returned *Transfer, *Disposition or *Flow is valid only until
// the next call.
func (d *Decoder) Decode(body []byte) (p Performative, payload []byte, err error) {
	r := &d.reader
	*r = NewReader(body)
	code := r.PeekDescriptor()
	v := d.place(code)
	if v == nil {
		r.Descriptor() // gives the better error when there is none
		r.Fail(fmt.Errorf("%w: descriptor 0x%02x is not a performative", ErrMalformed, code))
		return nil, nil, r.err
	}
	if err := v.Decode(r); err != nil {
		return nil, nil, err
	}
	return v, r.Rest(), nil
}

// place returns where to decode the performative with this descriptor, nil if there is none.
func (d *Decoder) place(code uint64) decodable {
	switch code {
	case CodeTransfer:
		return &d.transfer
	case CodeDisposition:
		return &d.disposition
	case CodeFlow:
		return &d.flow
	case CodeOpen:
		return new(Open)
	case CodeBegin:
		return new(Begin)
	case CodeAttach:
		return new(Attach)
	case CodeDetach:
		return new(Detach)
	case CodeEnd:
		return new(End)
	case CodeClose:
		return new(Close)
	case CodeSASLMechanisms:
		return new(SASLMechanisms)
	case CodeSASLInit:
		return new(SASLInit)
	case CodeSASLOutcome:
		return new(SASLOutcome)
	}
	return nil
}
