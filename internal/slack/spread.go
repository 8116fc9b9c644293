// SPDX-License-Identifier: Apache-2.0

package slack

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"time"
)

// A cell counts spans of about the same length: each millisecond up to 32 ms has one, and beyond
// that each doubling is divided into 16. So a cell is at most 6.25 % wide.
const (
	divisions = 16
	// cells reach beyond 8 years. What is longer counts in the last.
	cells = divisions * 35
)

func cellOf(span time.Duration) int {
	v := uint64(max(span, 0) / time.Millisecond)
	if v < 2*divisions {
		return int(v)
	}
	shift := bits.Len64(v) - bits.Len(divisions)
	return min(shift*divisions+int(v>>shift), cells-1)
}

// lower is where a cell begins, and upper where it ends.
func lower(cell int) time.Duration {
	if cell < 2*divisions {
		return time.Duration(cell) * time.Millisecond
	}
	shift := cell/divisions - 1
	return time.Duration((cell-shift*divisions)<<shift) * time.Millisecond
}

func upper(cell int) time.Duration { return lower(cell + 1) }

// A Spread says how many spans of time there were of each length, by cell. The zero value has none.
type Spread map[uint16]uint64

// Add counts n spans.
func (s Spread) Add(span time.Duration, n uint64) { s[uint16(cellOf(span))] += n }

// Count is how many spans there are.
func (s Spread) Count() (n uint64) {
	for _, m := range s {
		n += m
	}
	return n
}

// AtLeast is a span that all but a part p of the spans reach, rounded down to the cell.
func (s Spread) AtLeast(p float64) time.Duration {
	rank, seen := uint64(p*float64(s.Count())), uint64(0)
	for cell := range cells {
		if seen += s[uint16(cell)]; seen > rank {
			return lower(cell)
		}
	}
	return 0
}

// AtMost is a span that a part p of the spans do not exceed, rounded up to the cell.
func (s Spread) AtMost(p float64) time.Duration {
	beyond, seen := uint64((1-p)*float64(s.Count())), uint64(0)
	for cell := cells - 1; cell >= 0; cell-- {
		if seen += s[uint16(cell)]; seen > beyond {
			return upper(cell)
		}
	}
	return 0
}

// Between counts the spans up to each of the bounds, which ascend, and at the end those beyond. A
// span counts by the middle of its cell.
func (s Spread) Between(bounds []time.Duration) []uint64 {
	n := make([]uint64, len(bounds)+1)
	for cell, count := range s {
		middle := (lower(int(cell)) + upper(int(cell))) / 2
		i, _ := slices.BinarySearch(bounds, middle)
		n[i] += count
	}
	return n
}

func (s Spread) merge(other Spread) {
	for cell, n := range other {
		s[cell] += n
	}
}

// append encodes a spread: how many cells it has, and each with its count.
func (s Spread) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	for cell := range cells {
		if n, ok := s[uint16(cell)]; ok {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(cell)), n)
		}
	}
	return b
}

var errUnreadable = errors.New("slack: the counts cannot be read")

// read adds an encoded spread to s and returns what follows it.
func (s Spread) read(b []byte) (rest []byte, err error) {
	number := func() uint64 {
		n, length := binary.Uvarint(b)
		if length <= 0 {
			err = errUnreadable
			return 0
		}
		b = b[length:]
		return n
	}
	for range min(number(), cells) {
		cell, n := number(), number()
		if err != nil || cell >= cells {
			return nil, errUnreadable
		}
		s[uint16(cell)] += n
	}
	return b, err
}
