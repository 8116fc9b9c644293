// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"strings"
	"testing"
)

// What docs/operate/alerts.md says that a template can use.
func TestTemplatesUseTheFieldsAndMethodsOfAPage(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Count}} late on {{.Where}}":                                     "3 late on orders",
		"{{.Labels.entity}}{{.Labels.none}}|":                               "orders|",
		"{{.Title}}":                                                        firingTitle,
		"{{.Text}}":                                                         firingText,
		`{{.Since.Format "15:04"}} {{.Last.Sub .Since}}`:                    "11:00 1h0m0s",
		"{{with .Oldest}}{{.Subject}} {{.Data.Lag}}{{end}}":                 "m-1 0s",
		"{{range .Samples}}{{.Subject}};{{end}}":                            "m-1;",
		`{{if .Resolved}}over{{else if gt .Count 5}}many{{else}}few{{end}}`: "few",
	} {
		words, err := NewText("", text)
		if err != nil {
			t.Errorf("NewText(%q) = %v", text, err)
			continue
		}
		if _, _, got, err := words.render(firing()); got != want || err != nil {
			t.Errorf("%s = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestAMistakeInATemplateNamesItsKey(t *testing.T) {
	for bad, want := range map[string]string{
		"{{":                                     "unclosed action",
		"{{nothing 1}}":                          `function "nothing" not defined`,
		"{{.Nothing}}":                           "can't evaluate field Nothing in type alert.Notification",
		"{{.Oldest.Subject}}":                    "nil pointer evaluating *alert.Event.Subject", // a resolved group has none
		"{{with .DeadLetters}}{{.X}}{{end}}":     "can't evaluate field X in type *alert.DeadLetters",
		"{{range .Samples}}{{.X}}{{end}}":        "can't evaluate field X in type alert.Event",
		`{{template "none"}}`:                    `template "none" not defined`,
		"{{range 200000}}late on orders {{end}}": "writes more than 1048576 bytes",
		"{{printf `%2000000d` 1}}":               "writes more than 1048576 bytes",
		"{{define `x`}}{{template `x`}}{{end}}{{template `x`}}": "exceeded maximum template depth",
	} {
		for key, parse := range map[string]func() (Text, error){
			"title": func() (Text, error) { return NewText(bad, "") },
			"text":  func() (Text, error) { return NewText("", bad) },
		} {
			_, err := parse()
			wrong := (*SettingError)(nil)
			if !errors.As(err, &wrong) || wrong.Key != key || !strings.Contains(err.Error(), want) {
				t.Errorf("a %s of %s: %v, want a SettingError about %s with %q", key, bad, err, key, want)
			}
		}
	}
}
