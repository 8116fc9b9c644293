// SPDX-License-Identifier: Apache-2.0

package notifications

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// A Gap is a span of which a history may lack something.
type Gap struct {
	From   time.Time `json:"from"` // zero = ever
	To     time.Time `json:"to"`
	Reason string    `json:"reason"`
}

const (
	gapsHeader = "Overdue-Gaps"
	// maxGaps bounds the gaps of one answer. The earliest beyond it are one gap.
	maxGaps   = 20
	gapFormat = "2006-01-02 15:04:05Z"
)

// String is a gap in words.
func (g Gap) String() string {
	to := g.To.UTC().Format(gapFormat) + ": " + g.Reason
	if g.From.IsZero() {
		return "until " + to
	}
	return g.From.UTC().Format(gapFormat) + " to " + to
}

// Since returns the gaps since a time, the earliest first. It changes gaps.
func Since(gaps []Gap, since time.Time) []Gap {
	gaps = slices.DeleteFunc(gaps, func(g Gap) bool { return !g.To.After(since) })
	slices.SortStableFunc(gaps, func(a, b Gap) int { return a.To.Compare(b.To) })
	if over := len(gaps) - maxGaps; over > 0 {
		gaps[over] = Gap{gaps[0].From, gaps[over].To, "several gaps"}
		gaps = gaps[over:]
	}
	return gaps
}

// WriteGaps adds gaps to the header of an answer.
func WriteGaps(h http.Header, gaps []Gap) {
	if text, err := json.Marshal(gaps); err == nil && len(gaps) > 0 { // times and texts have a JSON form
		h.Set(gapsHeader, string(text))
	}
}

// ReadGaps reads the gaps of an answer.
func ReadGaps(h http.Header) (gaps []Gap, err error) {
	text := h.Get(gapsHeader)
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &gaps)
	return gaps, err
}
