// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strings"
	"testing"
)

func TestErrorBodiesAreXML(t *testing.T) {
	got := ErrorBody(400, "a <b> & 'c'\x00\xff\uffff")
	want := `<Error><Code>400</Code><Detail>a &lt;b&gt; &amp; 'c'</Detail></Error>`
	if got != want {
		t.Errorf("ErrorBody = %s, want %s", got, want)
	}
}

func TestValuesFromOutsideAreShownShort(t *testing.T) {
	if got := Quoted(strings.Repeat("ä", 1000)); len(got) > 200 {
		t.Errorf("Quoted = %d bytes, want at most 200", len(got))
	}
	if got := Quoted("a\nb"); strings.Contains(got, "\n") {
		t.Errorf("Quoted = %s, want one line", got)
	}
}
