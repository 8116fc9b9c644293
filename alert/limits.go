// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"encoding/json"
	"sort"
	"unicode"
	"unicode/utf8"

	"overdue/internal/escape"
)

// The largest messages that services take, by their documentation. They refuse a larger message
// whole.
const (
	maxSlackHeader  = 150     // characters, as slackSize counts them
	maxSlackSection = 3000    // likewise
	maxChat         = 28_000  // bytes of a request to Teams; one to Slack is smaller
	maxPagerDuty    = 512_000 // bytes of a request
)

// shoutrrrLimits are the most bytes of a title and of a text, by the service of shoutrrr; 0 = no
// limit that a notification reaches. A text leaves room for the title where both count together.
var shoutrrrLimits = map[string]struct{ title, text int }{
	"bark":       {text: 2500}, // a push of Apple has 4 KiB
	"discord":    {text: 5500},
	"googlechat": {text: 4000},
	"join":       {text: 1500}, // in a URL, percent-encoded
	"lark":       {text: 4096},
	"matrix":     {text: 10_000}, // an event has 64 KiB
	"notifiarr":  {text: 1900},
	"ntfy":       {text: 4000}, // a longer one becomes an attachment
	"opsgenie":   {title: 130},
	"pagerduty":  {text: 1024}, // the text is its summary
	"pushover":   {text: 1024},
	"rocketchat": {text: 5000},
	"teams":      {text: 1800}, // each line is a section
	"telegram":   {text: 3800},
	"wecom":      {text: 2048},
	"zulip":      {text: 10_000},
}

// fit returns text if its size is limit at most, or else the longest beginning with an ellipsis of
// which that holds. It cuts between characters as a reader sees them. size must not shrink when the
// text grows.
func fit(text string, limit int, size func(text string) int) string {
	if size(text) <= limit {
		return text
	}
	var ends []int
	previous := rune(0)
	for i, r := range text {
		if i == 0 || !joins(previous, r) {
			ends = append(ends, i)
		}
		previous = r
	}
	n := sort.Search(len(ends), func(i int) bool { return size(text[:ends[i]]+"…") > limit })
	if n == 0 {
		return ""
	}
	return text[:ends[n-1]] + "…"
}

// joins reports whether r changes the character before it: a combining mark, a variation, a skin
// tone, or what a joiner ties to it.
func joins(previous, r rune) bool {
	const joiner, firstTone, lastTone = 0x200d, 0x1f3fb, 0x1f3ff
	return previous == joiner || r == joiner || r >= firstTone && r <= lastTone || unicode.Is(unicode.M, r)
}

// cut shortens s to n characters.
func cut(s string, n int) string { return fit(s, n, utf8.RuneCountInString) }

// postWithin posts the message of text, or of as much of it as makes a request of limit bytes.
func (p *poster) postWithin(ctx context.Context, limit int, text string, message func(text string) any) error {
	text = fit(text, limit, func(text string) int {
		b, err := json.Marshal(message(text))
		if err != nil {
			return 0 // post returns the error
		}
		return len(escape.JSON(b))
	})
	return p.post(ctx, "application/json", "", "", message(text))
}
