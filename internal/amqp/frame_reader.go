// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

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
