// SPDX-License-Identifier: Apache-2.0

package traceparent

import (
	"strings"
	"testing"
)

const known = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestATraceparentIsReadAndWritten(t *testing.T) {
	c, ok := Parse(known)
	if !ok || !c.Sampled || c.String() != known {
		t.Errorf("Parse(%q) = %+v, %v, written as %q", known, c, ok, c.String())
	}
	unsampled := strings.TrimSuffix(known, "01") + "00"
	if c, ok = Parse(unsampled); !ok || c.Sampled || c.String() != unsampled {
		t.Errorf("Parse(%q) = %+v, %v, written as %q", unsampled, c, ok, c.String())
	}
	if text := (Context{}).String(); text != "" {
		t.Errorf("the zero Context is %q, want nothing", text)
	}
}

func TestOfLaterVersionsTheKnownPartIsRead(t *testing.T) {
	for _, s := range []string{"cc" + known[2:], "cc" + known[2:] + "-more"} {
		if got := Valid(s); got != known {
			t.Errorf("Valid(%q) = %q, want %q", s, got, known)
		}
	}
}

func TestWhatNamesNoSpanIsNoTraceparent(t *testing.T) {
	for _, s := range []string{
		"", "|4bf92f35.1.", known[:54], known + "-more", known + "x", "ff" + known[2:], strings.ToUpper(known), "0g" + known[2:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		strings.Replace(known, "-", "_", 1), known[:53] + "zz", strings.Repeat("0", 10_000),
	} {
		if got := Valid(s); got != "" {
			t.Errorf("Valid(%.60q) = %q, want nothing", s, got)
		}
	}
}

func TestAMessageStatesItsContextInEitherProperty(t *testing.T) {
	other := "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"
	for name, tt := range map[string]struct {
		properties map[string]any
		want       string
	}{
		"Azure SDK":                {map[string]any{DiagnosticID: known}, known},
		"OpenTelemetry":            {map[string]any{Property: known}, known},
		"both":                     {map[string]any{Property: known, DiagnosticID: other}, known},
		"an older Diagnostic-Id":   {map[string]any{DiagnosticID: "|4bf92f35.1."}, ""},
		"an unreadable one first":  {map[string]any{Property: "nothing", DiagnosticID: other}, other},
		"a property of other type": {map[string]any{Property: 7}, ""},
		"none":                     {nil, ""},
	} {
		c, ok := Of(func(name string) any { return tt.properties[name] })
		if c.String() != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, c.String(), ok, tt.want)
		}
	}
}
