// SPDX-License-Identifier: Apache-2.0

package filter

import "unicode/utf8"

// A pattern is what LIKE compares with, by characters.
type pattern []rune

// What a percent sign and an underscore stand for.
const (
	anyText rune = -1 - iota
	anyRune
)

// parsePattern reads a pattern. escape is negative where there is none.
func parsePattern(s string, escape rune) (pattern, error) {
	p, escaped := pattern{}, false
	for _, r := range s {
		switch {
		case escaped:
			p, escaped = append(p, r), false
		case r == escape:
			escaped = true
		case r == '%':
			p = append(p, anyText)
		case r == '_':
			p = append(p, anyRune)
		default:
			p = append(p, r)
		}
	}
	if escaped {
		return nil, evalErrorf("the pattern of LIKE ends with its escape character")
	}
	return p, nil
}

// match reports whether the whole of text fits. What stands between two percent signs may be the
// first that fits there, so only the latest of them is tried with more text: the steps are at most
// the characters of the text times those of the pattern.
func (p pattern) match(text string) bool {
	at, behind, retry := 0, -1, "" // behind the latest anyText, and the text there
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case at < len(p) && p[at] == anyText:
			at++
			behind, retry = at, text
		case at < len(p) && (p[at] == anyRune || p[at] == r):
			at++
			text = text[size:]
		case behind >= 0:
			_, size = utf8.DecodeRuneInString(retry)
			retry = retry[size:]
			at, text = behind, retry
		default:
			return false
		}
	}
	for at < len(p) && p[at] == anyText {
		at++
	}
	return at == len(p)
}
