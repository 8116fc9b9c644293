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
	// cells reach beyond 8 years. A longer time counts in the last.
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

// Counts are numbers that only rise, by what they count. Of settlements the first counts those after
// the deadline; then follow the cells of the time that was left, and those of the time taken.
type Counts map[uint16]uint64

// Where the cells begin, and how many numbers settlements have.
const (
	lateOffset  = 0
	leftOffset  = 1
	takenOffset = leftOffset + cells
	numbers     = takenOffset + cells
)

// Add counts n settlements. One without time left was late.
func (c Counts) Add(timeLeft, timeTaken time.Duration, n uint64) {
	if timeLeft <= 0 {
		c[lateOffset] += n
	}
	c[uint16(leftOffset+cellOf(timeLeft))] += n
	c[uint16(takenOffset+cellOf(timeTaken))] += n
}

// Merge adds other counts.
func (c Counts) Merge(other Counts) {
	for i, n := range other {
		c[i] += n
	}
}

// Since returns what has been counted after an earlier reading.
func (c Counts) Since(earlier Counts) Counts {
	more := Counts{}
	for i, n := range c {
		if n > earlier[i] {
			more[i] = n - earlier[i]
		}
	}
	return more
}

// Append encodes counts.
func (c Counts) Append(b []byte) []byte {
	for i, n := range c {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i)), n)
	}
	return b
}

var errUnreadable = errors.New("slack: the counts cannot be read")

// Parse reads encoded counts.
func Parse(b []byte) (Counts, error) {
	c := Counts{}
	for len(b) > 0 {
		i, length := binary.Uvarint(b)
		n, more := binary.Uvarint(b[max(length, 0):])
		if length <= 0 || more <= 0 || i >= numbers {
			return nil, errUnreadable
		}
		c[uint16(i)] += n
		b = b[length+more:]
	}
	return c, nil
}

// Settled is how many settlements there are.
func (c Counts) Settled() uint64 { return c.sum(leftOffset, cells) }

// Late is how many settlements came after the deadline.
func (c Counts) Late() uint64 { return c[lateOffset] }

func (c Counts) sum(first, n int) (sum uint64) {
	for i := range n {
		sum += c[uint16(first+i)]
	}
	return sum
}

// atLeast is a span that all but a part p of the spans reach, rounded down to the cell.
func (c Counts) atLeast(first int, p float64) time.Duration {
	rank, seen := uint64(p*float64(c.sum(first, cells))), uint64(0)
	for cell := range cells {
		if seen += c[uint16(first+cell)]; seen > rank {
			return lower(cell)
		}
	}
	return 0
}

// atMost is a span that a part p of the spans do not exceed, rounded up to the cell.
func (c Counts) atMost(first int, p float64) time.Duration {
	beyond, seen := uint64((1-p)*float64(c.sum(first, cells))), uint64(0)
	for cell := cells - 1; cell >= 0; cell-- {
		if seen += c[uint16(first+cell)]; seen > beyond {
			return upper(cell)
		}
	}
	return 0
}

// LeftBetween counts the settlements whose time left was up to each of the bounds, which ascend, and
// at the end those beyond. A span counts by the middle of its cell.
func (c Counts) LeftBetween(bounds []time.Duration) []uint64 {
	n := make([]uint64, len(bounds)+1)
	for cell := range cells {
		i, _ := slices.BinarySearch(bounds, (lower(cell)+upper(cell))/2)
		n[i] += c[uint16(leftOffset+cell)]
	}
	return n
}
