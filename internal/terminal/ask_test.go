// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A script must not take for done what nobody was there to agree to.
func TestAQuestionThatNobodyCanAnswerIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		in     io.Reader
		agreed bool
		err    string
		text   string
	}{
		"yes":                         {in: strings.NewReader(" Yes\n"), agreed: true},
		"yes without a line end":      {in: strings.NewReader("y"), agreed: true},
		"no":                          {in: strings.NewReader("n\n"), text: "Nothing was changed.\n"},
		"no without a line end":       {in: strings.NewReader("no"), text: "Nothing was changed.\n"},
		"an empty line":               {in: strings.NewReader("\n"), text: "Nothing was changed.\n"},
		"the end of the input":        {in: strings.NewReader(""), err: "standard input is at its end; --yes answers it", text: "\nNothing was changed.\n"},
		"input that cannot be read":   {in: iotest.ErrReader(errors.New("bad file descriptor")), err: "bad file descriptor; --yes answers it", text: "\nNothing was changed.\n"},
		"much text that is no answer": {in: strings.NewReader(strings.Repeat("y", 1000)), text: "Nothing was changed.\n"},
	} {
		var out bytes.Buffer
		agreed, err := Ask(&out, tt.in, "Proceed?")
		if agreed != tt.agreed || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: Ask = %v, %v, want %v and an error with %q", name, agreed, err, tt.agreed, tt.err)
		}
		if want := "Proceed? [y/N] " + tt.text; out.String() != want {
			t.Errorf("%s: it wrote %q, want %q", name, out.String(), want)
		}
	}
}
