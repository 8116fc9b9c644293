// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFramesHaveTheirBytes(t *testing.T) {
	for want, got := range map[string][]byte{
		"00000008 02 00 0003":                         AppendFrame(nil, 3, nil, nil),
		"0000000f 02 00 0001 005318 c0020140":         AppendFrame(nil, 1, &Close{}, nil),
		"00000011 02 01 0000 005344 c0 04 02 5000 40": AppendSASLFrame(nil, &SASLOutcome{}),
	} {
		if !bytes.Equal(got, unhex(t, want)) {
			t.Errorf("frame = %x, want %s", got, want)
		}
	}
	b := AppendFrame([]byte("before"), 2, &Transfer{}, []byte("payload"))
	if string(b[:6]) != "before" || b[9] != byte(len(b)-6) || !bytes.HasSuffix(b, []byte("payload")) {
		t.Errorf("frame behind other bytes = %q", b)
	}
}

func TestFramesAreReadHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		var want []Frame
		for i := range rapid.IntRange(1, 30).Draw(t, "frames") {
			body := bytes.Repeat([]byte{byte(i + 1)}, rapid.SampledFrom([]int{0, 1, 7, 500, 4096, 9000}).Draw(t, "body"))
			extended := 4 * rapid.IntRange(0, 3).Draw(t, "extended header, words")
			f := Frame{Type: byte(i % 2), Channel: uint16(i), Body: body}
			start := len(wire)
			wire = append(BeginFrame(wire, f.Type, f.Channel), make([]byte, extended)...)
			wire[start+4] += byte(extended / 4)
			wire = EndFrame(append(wire, body...), start)
			want = append(want, f)
		}
		src := io.Reader(bytes.NewReader(wire))
		switch rapid.IntRange(0, 3).Draw(t, "arrival") {
		case 1:
			src = iotest.OneByteReader(src)
		case 2:
			src = iotest.HalfReader(src)
		case 3:
			src = iotest.DataErrReader(src)
		}
		fr := NewFrameReader(src, 10_000)
		for i := range want {
			ready := fr.Ready()
			left := fr.Buffered()
			f, err := fr.Next()
			if err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
			if !reflect.DeepEqual(want[i], f) { // cmp looks at each byte for itself
				t.Fatalf("frame %d (-want +got):\n%s", i, cmp.Diff(want[i], f))
			}
			if ready && fr.Buffered() >= left {
				t.Fatalf("frame %d was ready, but was read", i)
			}
		}
		if _, err := fr.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last frame: %v, want io.EOF", err)
		}
		if len(fr.buf) > fastBuffer {
			t.Fatalf("buffer of %d bytes for frames of 10,000", len(fr.buf))
		}
	})
}

func TestBadFrameHeadersAreRefused(t *testing.T) {
	for name, hex := range map[string]string{
		"shorter than a header": "00000007 02 00 0000",
		"longer than allowed":   "00000201 02 00 0000",
		"4 GiB":                 "ffffffff 02 00 0000",
		"offset in the header":  "00000008 01 00 0000",
		"offset behind the end": "00000008 03 00 0000",
		"unknown type":          "00000008 02 02 0000",
	} {
		fr := NewFrameReader(bytes.NewReader(unhex(t, hex)), 0)
		_, err := fr.Next()
		if !errors.Is(err, ErrFraming) || AsError(err).Condition != ErrCondConnectionFramingError {
			t.Errorf("%s: %v, want ErrFraming", name, err)
		}
		if len(fr.buf) != firstBuffer {
			t.Errorf("%s: the buffer grew to %d", name, len(fr.buf))
		}
	}
}

func TestReadErrorsDistinguishHowTheSourceEnds(t *testing.T) {
	whole := AppendFrame(nil, 0, &Close{}, nil)
	broken := errors.New("reset by peer")
	for _, c := range []struct {
		src  io.Reader
		want error
	}{
		{bytes.NewReader(nil), io.EOF},
		{bytes.NewReader(whole[:3]), io.ErrUnexpectedEOF},
		{bytes.NewReader(whole[:len(whole)-1]), io.ErrUnexpectedEOF},
		{iotest.ErrReader(broken), broken},
		{io.MultiReader(bytes.NewReader(whole[:9]), iotest.ErrReader(broken)), broken},
		{nothing{}, io.ErrNoProgress},
	} {
		if _, err := NewFrameReader(c.src, 512).Next(); !errors.Is(err, c.want) {
			t.Errorf("Next = %v, want %v", err, c.want)
		}
	}
	if _, err := NewFrameReader(bytes.NewReader(ProtoAMQP[:5]), 512).ReadProto(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ReadProto of half a header: %v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestFramesFollowAProtocolHeader(t *testing.T) {
	wire := AppendFrame(append([]byte(nil), ProtoAMQP[:]...), 7, &Close{}, nil)
	fr := NewFrameReader(bytes.NewReader(wire), 512)
	if header, err := fr.ReadProto(); header != ProtoAMQP || err != nil {
		t.Fatalf("ReadProto = %v, %v", header, err)
	}
	if !fr.Ready() {
		t.Error("the frame behind the header is not ready")
	}
	if f, err := fr.Next(); f.Channel != 7 || err != nil {
		t.Errorf("Next = %+v, %v", f, err)
	}
}

// A stated size costs nothing until the bytes arrive.
func TestBufferGrowsWithWhatArrived(t *testing.T) {
	const max = 64 << 20
	for _, arrived := range []int{8, 5000, 1 << 20} {
		wire := append([]byte{0x04, 0, 0, 0, 2, 0, 0, 0}, make([]byte, arrived-8)...)
		fr := NewFrameReader(bytes.NewReader(wire), max)
		if _, err := fr.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("Next of %d bytes of a frame: %v", arrived, err)
		}
		if limit := 2 * arrived; len(fr.buf) > limit && len(fr.buf) > firstBuffer {
			t.Errorf("buffer of %d bytes after %d arrived, want at most %d", len(fr.buf), arrived, limit)
		}
	}
}

func TestBusyReaderReadsMuchAtOnce(t *testing.T) {
	frame := AppendFrame(nil, 0, &Transfer{}, make([]byte, 1000))
	fr := NewFrameReader(bytes.NewReader(bytes.Repeat(frame, 1000)), 65536)
	for i := range 1000 {
		if _, err := fr.Next(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if len(fr.buf) != fastBuffer {
		t.Errorf("buffer of %d bytes after a megabyte of frames, want %d", len(fr.buf), fastBuffer)
	}
	fr.SetMax(0)
	fr.src = bytes.NewReader(frame)
	if _, err := fr.Next(); !errors.Is(err, ErrFraming) {
		t.Errorf("frame of %d bytes after SetMax(0): %v, want ErrFraming", len(frame), err)
	}
}
