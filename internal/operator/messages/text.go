// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/escape"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// wholeLetter is a dead letter with its body.
type wholeLetter struct {
	*dlq.Letter
	Body       *string `json:"body,omitempty"`       // text
	BodyBase64 *string `json:"bodyBase64,omitempty"` // what is no text
}

// bodyText is the body as text, or in base64.
func bodyText(l *dlq.Letter) (text string, isText bool) {
	body := l.Body()
	b, isBytes := body.([]byte)
	switch {
	case !isBytes:
		return dlq.Text(body), true
	case utf8.Valid(b):
		return string(b), true
	}
	return base64.StdEncoding.EncodeToString(b), false
}

// letterList prints a line for each dead letter as it comes, or JSON at the end.
type letterList struct {
	out     io.Writer
	json    bool
	table   *terminal.Table
	letters []*dlq.Letter
	n       int
}

func newLetterList(out io.Writer, o *LettersOptions) *letterList {
	table := terminal.NewTable(o.Width, "NUMBER", "ENQUEUED", "WITHIN", "MESSAGE-ID:12", "REASON:19", "DESCRIPTION:12")
	return &letterList{out: out, json: o.JSON, table: table, letters: []*dlq.Letter{}}
}

// listFlush is how many lines share the widths of their columns.
const listFlush = 1000

func (d *letterList) add(l *dlq.Letter) error {
	if d.json {
		d.letters = append(d.letters, l)
		return nil
	}
	within := "" // the deadline, seen from ENQUEUED
	if !l.Due.IsZero() {
		within = l.Due.Sub(l.EnqueuedTime).Round(time.Millisecond).String()
	}
	d.table.Add(l.Number, l.EnqueuedTime.Format(time.RFC3339), within, l.MessageID, l.Reason, l.Description)
	if d.n++; d.n%listFlush == 0 {
		return d.table.Flush(d.out)
	}
	return nil
}

func (d *letterList) end(s *survey) error {
	if d.json {
		return escape.WriteJSON(d.out, struct {
			*survey
			DeadLetters []*dlq.Letter `json:"deadLetters"`
		}{s, d.letters})
	}
	if err := d.table.Flush(d.out); err != nil {
		return err
	}
	return s.write(d.out)
}

// writeGroups prints a line for each reason.
func (s *survey) writeGroups(out io.Writer, o *LettersOptions) error {
	groups, others := s.Groups(s.Read)
	if o.JSON {
		return escape.WriteJSON(out, struct {
			*survey
			Groups []*dlq.Group `json:"groups"`
		}{s, groups})
	}
	table := terminal.NewTable(o.Width, "COUNT", "FIRST-ENQUEUED", "LAST-ENQUEUED", "REASON:19")
	for _, g := range groups {
		table.Add(g.Count, g.Earliest.Format(time.RFC3339), g.Latest.Format(time.RFC3339), cmp.Or(g.Reason, "(no reason)"))
	}
	if others > 0 {
		table.Add(others, "", "", "(other reasons)")
	}
	if err := table.Flush(out); err != nil {
		return err
	}
	_, err := io.WriteString(out, s.sum())
	return err
}

// noneMatches says that a filter leaves out all dead letters.
func noneMatches(read int, place string) string {
	if read == 1 {
		return fmt.Sprintf("the only dead letter of %s does not match", place)
	}
	return fmt.Sprintf("none of the %d dead letters of %s matches", read, place)
}

// sum says how many dead letters match.
func (s *survey) sum() string {
	switch {
	case s.Read == 0:
		return fmt.Sprintf("%s has no dead letters.\n", s.Entity)
	case s.Chosen == 0:
		text := noneMatches(s.Read, s.Entity)
		return fmt.Sprintf("%s%s.\n", strings.ToUpper(text[:1]), text[1:])
	case s.More:
		return fmt.Sprintf("The first %s of %s; there are more.\n", plural.Of(s.Chosen, "matching dead letter", "matching dead letters"), s.Entity)
	case s.Read == 1:
		return fmt.Sprintf("The only dead letter of %s.\n", s.Entity)
	}
	return fmt.Sprintf("%d of the %d dead letters of %s.\n", s.Chosen, s.Read, s.Entity)
}

// write counts the dead letters by reason.
func (s *survey) write(out io.Writer) error {
	var b strings.Builder
	b.WriteString(s.sum())
	groups, others := s.Groups(10)
	for _, g := range groups {
		fmt.Fprintf(&b, "  %6d  %s\n", g.Count, cmp.Or(escape.Text(g.Reason), "(no reason)"))
	}
	if others > 0 {
		fmt.Fprintf(&b, "  %6d  of other reasons\n", others)
	}
	if s.Chosen > 0 {
		fmt.Fprintf(&b, "  enqueued from %s to %s\n", s.Earliest.Format(time.RFC3339), s.Latest.Format(time.RFC3339))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// letterDetails prints dead letters whole.
type letterDetails struct {
	out     io.Writer
	json    bool
	letters []wholeLetter
}

func (d *letterDetails) add(l *dlq.Letter) error {
	text, isText := bodyText(l)
	if !d.json {
		return d.write(l, text, isText)
	}
	w := wholeLetter{Letter: l}
	if isText {
		w.Body = &text
	} else {
		w.BodyBase64 = &text
	}
	d.letters = append(d.letters, w)
	return nil
}

func (d *letterDetails) end() error {
	if d.json {
		return escape.WriteJSON(d.out, d.letters)
	}
	return nil
}

// write is the JSON form with a name and a value a line, which is how it is read best.
func (d *letterDetails) write(l *dlq.Letter, body string, isText bool) error {
	encoded, err := json.Marshal(l)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(encoded))
	dec.UseNumber() // a sequence number has more digits than a float
	var b strings.Builder
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if all, isMap := value.(map[string]any); isMap {
			fmt.Fprintf(&b, "%s:\n", name)
			for _, k := range slices.Sorted(maps.Keys(all)) {
				fmt.Fprintf(&b, "  %s: %s\n", escape.Text(k), escape.Text(fmt.Sprint(all[k])))
			}
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", name, escape.Text(fmt.Sprint(value)))
	}
	what := "body"
	if !isText {
		what = "body, in base64"
	}
	fmt.Fprintf(&b, "%s:\n%s\n\n", what, escape.Lines(body))
	_, err = io.WriteString(d.out, b.String())
	return err
}
