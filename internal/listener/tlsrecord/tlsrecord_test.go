// SPDX-License-Identifier: Apache-2.0

package tlsrecord_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"overdue/internal/listener/tlsrecord"
	"overdue/internal/testing/testseed"
)

// A stream gives its bytes in pieces of any size, and ends with an error beside the last of them.
type stream struct {
	net.Conn
	rng  *rand.Rand
	rest []byte
}

var errOver = errors.New("over")

func (s *stream) Read(b []byte) (int, error) {
	n := copy(b, s.rest[:min(len(s.rest), 1+s.rng.IntN(9000))])
	if s.rest = s.rest[n:]; len(s.rest) == 0 {
		return n, errOver
	}
	return n, nil
}

func TestNothingIsReadBeyondTheEndOfARecord(t *testing.T) {
	first := testseed.Of(t)
	noise := make([]byte, 1<<16)
	for i := range noise {
		noise[i] = byte(rand.IntN(256))
	}
	for seed := first; seed < first+100; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		var all []byte
		ends := map[int]bool{}
		for range 1 + rng.IntN(40) {
			size := []int{0, 1, rng.IntN(300), 16_000 + rng.IntN(400), 65_535}[rng.IntN(5)]
			all = binary.BigEndian.AppendUint16(append(all, 23, 3, 3), uint16(size))
			all = append(all, noise[:size]...)
			ends[len(all)] = true
		}
		all = append(all, 23, 3) // it breaks off
		c := tlsrecord.Whole(&stream{rng: rng, rest: all})
		var got []byte
		for {
			buf := make([]byte, 5+rng.IntN(20_000))
			n, err := c.Read(buf)
			for i := len(got) + 1; i < len(got)+n && err == nil; i++ {
				if ends[i] && !ends[len(got)+n] {
					t.Fatalf("seed %d: a read from %d to %d goes beyond the end of a record at %d", seed, len(got), len(got)+n, i)
				}
			}
			got = append(got, buf[:n]...)
			if errors.Is(err, errOver) {
				break
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if n == 0 {
				t.Fatalf("seed %d: a read of nothing", seed)
			}
		}
		if !bytes.Equal(got, all) {
			t.Fatalf("seed %d: %d bytes came out as %d others", seed, len(all), len(got))
		}
	}
}

func TestTheEndOfAConnectionIsPassedOn(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	if n, err := tlsrecord.Whole(near).Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read = %d, %v, want the end", n, err)
	}
}
