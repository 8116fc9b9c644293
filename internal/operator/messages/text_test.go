// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"overdue/internal/operator/dlq"
)

// printed is what List prints of letters on a terminal of so many columns.
func printed(t *testing.T, width int, letters ...*dlq.Letter) string {
	t.Helper()
	var out bytes.Buffer
	list := newLetterList(&out, &LettersOptions{Width: width})
	for _, l := range letters {
		if err := list.add(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.end(&survey{&dlq.Survey{Entity: "orders", Read: len(letters), Chosen: len(letters), Latest: letters[0].EnqueuedTime}}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAListOfDeadLettersFitsIntoTheTerminal(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	letters := []*dlq.Letter{
		{Number: 4711, EnqueuedTime: at, Due: at.Add(90 * time.Second), MessageID: "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", Reason: "TTLExpiredException", Description: "The message expired and was dead lettered."},
		{Number: 4712, EnqueuedTime: at, MessageID: "m-2", Reason: "Poison"},
	}
	for width, want := range map[int]string{
		100: "NUMBER  ENQUEUED              WITHIN  MESSAGE-ID                   REASON               DESCRIPTION\n" +
			"4711    2026-03-04T05:06:07Z  1m30s   f81d4fae-7dec-11d0-a765-00…  TTLExpiredException  The message…\n" +
			"4712    2026-03-04T05:06:07Z  –       m-2                          Poison               –\n",
		0: "4711    2026-03-04T05:06:07Z  1m30s   f81d4fae-7dec-11d0-a765-00a0c91e6bf6  TTLExpiredException  The message expired and was dead lettered.\n",
	} {
		got := printed(t, width, letters...)
		if !strings.Contains(got, want) {
			t.Errorf("on %d columns:\n%swant\n%s", width, got, want)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(line) - 1; width > 0 && n > width {
				t.Errorf("a line has %d columns, want %d at most: %s", n, width, line)
			}
		}
	}
}
