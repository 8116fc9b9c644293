// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EncodingFault says how a text was saved that is not plain UTF-8; "" = it is.
func EncodingFault(text string) string {
	switch {
	case strings.HasPrefix(text, "\ufeff"):
		return "begins with a byte order mark, as PowerShell and some editors write it; save it as UTF-8 without one"
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		return "is not UTF-8, but perhaps UTF-16, as PowerShell writes it; save it as UTF-8 without a byte order mark"
	}
	return ""
}

// TextFault says what stands around or in a text of one line that is none of its own; "" = nothing.
func TextFault(text string) string {
	quote := func(r rune) bool { return strings.ContainsRune("\"'`“”‘’", r) }
	hidden := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.IsSpace(r) && r != ' '
	}
	switch at := strings.IndexFunc(text, hidden); {
	case EncodingFault(text) != "":
		return EncodingFault(text)
	case strings.TrimFunc(text, quote) != text:
		return "has quotes around it, which docker --env-file and files keep; remove them"
	case strings.ContainsAny(text, "\r\n"):
		return "has a line break in it; put it on one line"
	case at >= 0:
		return fmt.Sprintf("has an invisible character after %d others; copy it again, or remove that", utf8.RuneCountInString(text[:at]))
	}
	return ""
}
