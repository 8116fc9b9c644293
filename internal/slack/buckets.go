// SPDX-License-Identifier: Apache-2.0

package slack

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

const (
	// bucketFactor has Prometheus divide each doubling into perDoubling buckets, 4.4 % wide each.
	bucketFactor = 1.045
	perDoubling  = 16
	// zeroBucket counts the spans of no length at all.
	zeroBucket = math.MinInt16
)

// Buckets are counts that only rise, by the native bucket of a histogram: that with the number i
// counts the spans of up to 2^(i/16) s. Counts of anything else are in bucket 0.
type Buckets map[int16]uint64

// bucketsOf returns the native buckets of a histogram, which states each as the difference to the
// one before.
func bucketsOf(h *dto.Histogram) Buckets {
	b := Buckets{}
	if n := h.GetZeroCount(); n > 0 {
		b[zeroBucket] = n
	}
	deltas, number, count := h.GetPositiveDelta(), int32(0), int64(0)
	for _, span := range h.GetPositiveSpan() {
		number += span.GetOffset()
		for _, delta := range deltas[:span.GetLength()] {
			if count += delta; count > 0 {
				b[int16(number)] = uint64(count)
			}
			number++
		}
		deltas = deltas[span.GetLength():]
	}
	return b
}

func upper(number int16) time.Duration {
	if number == zeroBucket {
		return 0
	}
	return time.Duration(math.Exp2(float64(number)/perDoubling) * float64(time.Second))
}

func lower(number int16) time.Duration {
	if number == zeroBucket {
		return 0
	}
	return upper(number - 1)
}

// Merge adds other counts.
func (b Buckets) Merge(other Buckets) {
	for number, n := range other {
		b[number] += n
	}
}

// Since returns what has been counted after an earlier reading.
func (b Buckets) Since(earlier Buckets) Buckets {
	more := Buckets{}
	for number, n := range b {
		if n > earlier[number] {
			more[number] = n - earlier[number]
		}
	}
	return more
}

// Append encodes counts.
func (b Buckets) Append(to []byte) []byte {
	for number, n := range b {
		to = binary.AppendUvarint(binary.AppendVarint(to, int64(number)), n)
	}
	return to
}

var errUnreadable = errors.New("slack: the counts cannot be read")

// Parse reads encoded counts.
func Parse(text []byte) (Buckets, error) {
	b := Buckets{}
	for len(text) > 0 {
		number, length := binary.Varint(text)
		n, more := binary.Uvarint(text[max(length, 0):])
		if length <= 0 || more <= 0 || number != int64(int16(number)) {
			return nil, errUnreadable
		}
		b[int16(number)] += n
		text = text[length+more:]
	}
	return b, nil
}

func (b Buckets) sum() (sum uint64) {
	for _, n := range b {
		sum += n
	}
	return sum
}

// atLeast is a span that all but a part p of the spans reach, rounded down to the bucket.
func (b Buckets) atLeast(p float64) time.Duration {
	rank, seen := uint64(p*float64(b.sum())), uint64(0)
	for _, number := range slices.Sorted(maps.Keys(b)) {
		if seen += b[number]; seen > rank {
			return lower(number)
		}
	}
	return 0
}

// atMost is a span that a part p of the spans do not exceed, rounded up to the bucket.
func (b Buckets) atMost(p float64) time.Duration {
	beyond, seen := uint64((1-p)*float64(b.sum())), uint64(0)
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(b))) {
		if seen += b[number]; seen > beyond {
			return upper(number)
		}
	}
	return 0
}

// Between counts the spans up to each of the bounds, which ascend, and at the end those beyond. A
// span counts by the middle of its bucket.
func (b Buckets) Between(bounds []time.Duration) []uint64 {
	counts := make([]uint64, len(bounds)+1)
	for number, n := range b {
		i, _ := slices.BinarySearch(bounds, (lower(number)+upper(number))/2)
		counts[i] += n
	}
	return counts
}
