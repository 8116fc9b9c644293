// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"strings"
	"testing"
	"text/template"
	"time"
)

// What text/template says of a page, a page template says, too.
var pageTemplates = []string{
	"", "plain", "{{.Count}} late on {{.Where}}", "{{.Title}}\n{{.Text}}", "{{.}}", "{{.Oldest}}", "{{.Labels}}", "{{.Samples}}",
	"{{.Labels.entity}} {{.Labels.none}}|", "{{with .Labels.none}}a{{else with .Labels.entity}}{{.}}{{else}}c{{end}}",
	"{{.Since.Format \"15:04\"}} {{.Last.UTC.Unix}} {{.Since.Add .WorstLag}} {{.Last.Sub .Since}} {{.Since.Month}} {{.Since.Weekday.String}}",
	"{{.WorstLag}} {{.WorstLag.Seconds}} {{.WorstLag.Round 1000000000}} {{printf \"%.1f\" .WorstLag.Minutes}}",
	"{{with .Oldest}}{{.Subject}} {{.Data.Deadline}} {{.Data.Lag}} {{.Data.DeliveryCount}} {{printf \"%s\" .MarshalJSON}}{{end}}",
	"{{if .Resolved}}over{{else if gt .Count 5}}many{{else}}few{{end}}", "{{if and .Oldest (not .Resolved)}}{{.Oldest.Data.LagMs}}{{end}}",
	"{{if or .Resolved (eq .Labels.entity \"orders\" \"bills\")}}x{{end}}", "{{or .Labels.none .Source}} {{and 1 0 .Nothing}} {{or 1 .Nothing}}",
	"{{range .Samples}}{{.Subject}};{{else}}none{{end}}", "{{range $i, $e := .Samples}}{{if $i}}, {{end}}{{$e.Subject}} {{$.Total}}{{end}}",
	"{{range $k, $v := .Labels}}{{$k}}={{$v}} {{end}}", "{{range $k := .Labels}}{{$k}} {{end}}", "{{range 3}}{{.}}{{end}}{{range 0}}a{{else}}b{{end}}",
	"{{range $i := 9}}{{if eq $i 2}}{{continue}}{{end}}{{if gt $i 4}}{{break}}{{end}}{{$i}}{{end}}",
	"{{$x := 1}}{{range 4}}{{$x = .}}{{end}}{{$x}}", "{{$i := 7}}{{$e := 8}}{{range $i, $e = .Samples}}{{end}}{{$i}} {{$e}}",
	"{{$x := 1}}{{if $x := 2}}{{$x}}{{end}}{{$x}}", "{{with $o := .Oldest}}{{$o.ID}}{{end}}",
	"{{define \"one\"}}<{{.Subject}}{{$.ID}}>{{end}}{{range .Samples}}{{template \"one\" .}}{{end}}{{block \"b\" .Total}}{{.}}{{end}}",
	"{{len .Samples}} {{len .Labels}} {{len .Source}} {{index .Labels \"entity\"}} {{(index .Samples 0).Subject}} {{index .Source 1}} {{slice .Source 2 4}} {{slice .Source 1}}",
	"{{print 1 2 \"a\" nil}} {{println .Count}} {{printf \"%05d|%v|%q\" .Total .Resolved .Source}} {{.Source | printf \"%s-%s\" \"a\"}}",
	"{{html \"<a>\"}} {{js \"'a'\"}} {{urlquery \"a b\" .Count}} {{\"<b>\" | html | printf \"%q\"}}",
	"{{1.5}} {{0x10}} {{'a'}} {{1e3}} {{true}} {{\"a\\n\"}} {{`raw`}} {{-3}} {{0x1p4}} {{1_000}}", "{{- /* nothing */ -}} a {{- .Count -}} b",
	"{{eq .Count 10}} {{ne .Source \"\"}} {{lt 1 2}} {{le 2 2}} {{ge 1.5 1.0}} {{eq .Since .Since}} {{eq .Since .Last}} {{lt \"a\" \"b\"}} {{eq true true}}",
	"{{range .Samples}}{{eq .Data.DeliveryCount 0}} {{lt -1 .Data.DeliveryCount}} {{gt 3 .Data.DeliveryCount}}{{end}}", "{{eq .Oldest nil}} {{ne nil nil}}",
	"{{if .Since}}a{{end}}{{if .WorstLag}}b{{end}}{{if .Samples}}c{{end}}{{if .Labels}}d{{end}}{{if 0.0}}e{{end}}{{if \"\"}}f{{end}}", "{{$}} {{$.Count}}",
	// Errors.
	"{{.Nothing}}", "{{.Oldest.Nothing}}", "{{.Oldest.Data.Nothing}}", "{{.Count.Nothing}}", "{{.Count 1}}", "{{1 2}}", "{{.Title 1}}", "{{.Since.Format}}",
	"{{.Since.Format 1}}", "{{nil}}", "{{len 3}}", "{{index .Samples 99}}", "{{index .Samples -1}}", "{{index .Samples \"a\"}}", "{{index .Count 1}}",
	"{{slice .Source 4 2}}", "{{slice .Source 1 2 3}}", "{{slice .Labels 1}}", "{{eq 1}}", "{{eq 1 \"a\"}}", "{{lt true false}}", "{{lt 1 nil}}",
	"{{template \"none\"}}", "{{range .Source.X}}{{end}}", "{{range .Resolved}}{{end}}", "{{range $i, $e := 3}}{{end}}", "{{and}}", "{{not}}", "{{not 1 2}}",
	"{{define \"x\"}}{{template \"x\"}}{{end}}{{template \"x\"}}", "{{eq .Labels .Labels}}", "{{.Source | .Count}}", "{{nothing 1}}", "{{", "{{end}}", "{{$x}}",
	"{{slice .Samples 0 99}}", "{{.Since.wall}}", "{{printf 1}}", "{{index .Labels 1}}",
}

func bothSay(t *testing.T, text string, p Page) (mine string, mineErr error, theirs string, theirsErr error) {
	t.Helper()
	tmpl, mineErr := parsePageTemplate("t", text)
	if mineErr == nil {
		mine, mineErr = tmpl.execute(p)
	}
	o, theirsErr := template.New("t").Option("missingkey=zero").Parse(text)
	if theirsErr == nil {
		var b strings.Builder
		theirsErr = o.Execute(&b, p)
		theirs = b.String()
	}
	return mine, mineErr, theirs, theirsErr
}

func TestPageTemplatesSayWhatGoTemplatesSay(t *testing.T) {
	for _, p := range []Page{firing(), resolved()} {
		for _, text := range pageTemplates {
			mine, mineErr, theirs, theirsErr := bothSay(t, text, p)
			if (mineErr == nil) != (theirsErr == nil) || mineErr == nil && mine != theirs {
				t.Errorf("%s\nsays %q, %v\nwant %q, %v", text, mine, mineErr, theirs, theirsErr)
			}
		}
	}
}

func TestPageTemplatesAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		"{{range 1000000000}}{{end}}":                                   "takes more than",
		"{{define `x`}}{{template `x`}}{{end}}{{template `x`}}":         "templates are more than 100 deep in each other",
		"{{range 2000}}{{printf `%9999d` .}}{{end}}":                    "says more than",
		"{{$x := `ab`}}{{range 40}}{{$x = printf `%s%s` $x $x}}{{end}}": "printf makes more than",
		"{{range 100}}{{$x := printf `%999999d` .}}{{end}}":             "takes more than",
		"{{call .Title}}":      `function "call" not defined`,
		"{{.Since.GobEncode}}": "time.Time has no GobEncode",
		"{{2i}}":               "2i is no number that can be used here",
		"{{range .Samples}}{{.Data.Nothing}}{{end}}": "alert.EventData has no Nothing",
	} {
		_, err := NewText(text, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Whatever is written, nothing panics, and where both say something it is the same.
func FuzzPageTemplate(f *testing.F) {
	for _, text := range pageTemplates {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 || strings.Contains(text, "Local") {
			t.Skip()
		}
		p := firing()
		p.WorstLag, p.Since = time.Hour, p.Last.Add(-time.Hour)
		if tmpl, err := parsePageTemplate("t", text); err != nil {
			return
		} else if _, err := tmpl.execute(p); err != nil {
			return // text/template knows no bounds
		}
		if mine, _, theirs, theirsErr := bothSay(t, text, p); theirsErr == nil && mine != theirs {
			t.Errorf("%q, want %q", mine, theirs)
		}
	})
}
