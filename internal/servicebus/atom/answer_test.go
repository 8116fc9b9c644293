// SPDX-License-Identifier: Apache-2.0

package atom_test

import (
	"fmt"
	"strings"
	"testing"

	"overdue/internal/servicebus/atom"
)

// shown is an answer in one line.
func shown(a atom.Answer) string {
	var said []string
	for _, e := range a.Entries {
		what := "nothing"
		if e.Description != nil {
			what = e.Description.Name.Local + " " + e.Description.ChildText("Status")
		}
		said = append(said, strings.TrimSpace(e.Title+": "+what))
	}
	return fmt.Sprint(a.IsFeed, " ", strings.Join(said, ", "))
}

func TestAnswersAreReadWhateverSurroundsTheirEntries(t *testing.T) {
	const queue = "<entry><title type='text'> orders </title><content><QueueDescription><Status>Active</Status></QueueDescription></content></entry>"
	for body, want := range map[string]string{
		queue: "false orders: QueueDescription Active",
		"<?xml version='1.0' encoding='utf-8'?>\n" + queue + "\n": "false orders: QueueDescription Active",
		"<?pi?><!-- c -->" + queue:                                "false orders: QueueDescription Active",
		"<feed>text<link/><!-- c -->" + queue + "text</feed>":     "true orders: QueueDescription Active",
		"<feed/>":                       "true",
		"<feed><title>t</title></feed>": "true",
		"<entry/>":                      "false : nothing",
		"<entry><content/></entry>":     "false : nothing",
		"<feed>" + queue + "<entry><title>t</title></entry></feed>":                     "true orders: QueueDescription Active, t: nothing",
		"<a:feed xmlns:a='http://www.w3.org/2005/Atom'><a:entry/></a:feed>":             "true : nothing",
		"<entry><content><Q><Status>A</Status><Status>B</Status></Q></content></entry>": "false : Q B",
	} {
		got, err := atom.ParseAnswer(strings.NewReader(body))
		if err != nil || strings.TrimSpace(shown(got)) != want {
			t.Errorf("ParseAnswer(%s) = %q, %v; want %q", body, shown(got), err, want)
		}
	}
}

func TestHostileAnswersAreRefused(t *testing.T) {
	for _, body := range []string{
		"", "hello", "<entry>", "<html/>", "<entry/><entry/>", "<entry/>text", "<feed>\xff</feed>", "<entry>&other;</entry>",
		`<!DOCTYPE entry [<!ENTITY a "aaaa">]><entry>&a;</entry>`, "<!DOCTYPE entry><entry/>",
		strings.Repeat("<entry>", 100) + strings.Repeat("</entry>", 100),
		"<feed>" + strings.Repeat("<entry/>", 100_001) + "</feed>",
		"<entry" + attributes(17) + "/>",
	} {
		if got, err := atom.ParseAnswer(strings.NewReader(body)); err == nil {
			t.Errorf("ParseAnswer(%.100s) = %.100q, want an error", body, shown(got))
		}
	}
}

func attributes(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, " a%d=''", i)
	}
	return all.String()
}

func TestOnlyTheErrorOfTheAPIHasADetail(t *testing.T) {
	for body, want := range map[string]string{
		"<Error><Code>404</Code><Detail> gone </Detail></Error>": "gone",
		"<Error/>": "", "<html><Detail>gone</Detail></html>": "", "gone": "", "": "", "<!DOCTYPE Error><Error><Detail>gone</Detail></Error>": "",
	} {
		if got := atom.ErrorDetail(strings.NewReader(body)); got != want {
			t.Errorf("ErrorDetail(%s) = %q, want %q", body, got, want)
		}
	}
}

// A body that Parse takes is one that ParseAnswer takes too, unless it is of something else.
func FuzzParseAnswer(f *testing.F) {
	f.Add(entry("<LockDuration>PT1M</LockDuration>"))
	f.Add("<feed><!-- c --><entry><title>s</title><content><SubscriptionDescription/></content></entry></feed>")
	f.Add("<!DOCTYPE entry><entry/>")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := atom.ParseAnswer(strings.NewReader(body))
		if err == nil && !got.IsFeed && len(got.Entries) != 1 {
			t.Errorf("%q is one entry, and has %d", body, len(got.Entries))
		}
		root, strict := atom.Parse(strings.NewReader(body))
		if strict == nil && err != nil && (root.Name.Local == "entry" || root.Name.Local == "feed") {
			t.Errorf("Parse takes %q, and ParseAnswer says %v", body, err)
		}
	})
}
