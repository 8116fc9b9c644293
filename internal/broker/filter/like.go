// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strings"
	"unicode/utf8"
)

// A pattern is what LIKE compares with: segments with anything in between. A
// match takes time linear in the text, whatever the pattern.
type pattern struct {
	segments []segment // between the percent signs, the empty ones at the ends included
}

// A segment stands for as many characters as it has itself.
type segment struct {
	literal string // where it holds no underscore
	runes   []rune // else; anyRune stands for any
	masks   map[rune][]uint64
	any     []uint64 // the mask of a rune that the segment does not hold
}

const anyRune = -1

// parsePattern reads a pattern. escape is negative where there is none.
func parsePattern(s string, escape rune) (*pattern, error) {
	p := &pattern{}
	var runes []rune
	wild, escaped := false, false
	end := func() {
		p.segments = append(p.segments, newSegment(runes, wild))
		runes, wild = nil, false
	}
	for _, r := range s {
		switch {
		case escaped:
			runes, escaped = append(runes, r), false
		case r == escape:
			escaped = true
		case r == '%':
			end()
		case r == '_':
			runes, wild = append(runes, anyRune), true
		default:
			runes = append(runes, r)
		}
	}
	if escaped {
		return nil, evalErrorf("the pattern of LIKE ends with its escape character")
	}
	end()
	return p, nil
}

// newSegment prepares to find runes. Where they hold a wildcard the way is
// shift-and: bit i of a mask says whether a rune can stand at place i.
func newSegment(runes []rune, wild bool) segment {
	if !wild {
		return segment{literal: string(runes)}
	}
	words := (len(runes) + 63) / 64
	s := segment{runes: runes, masks: map[rune][]uint64{}, any: make([]uint64, words)}
	for i, r := range runes {
		if r == anyRune {
			s.any[i/64] |= 1 << (i % 64)
		} else if s.masks[r] == nil {
			s.masks[r] = make([]uint64, words)
		}
	}
	for r, mask := range s.masks {
		for i, at := range runes {
			if at == r || at == anyRune {
				mask[i/64] |= 1 << (i % 64)
			}
		}
	}
	return s
}

// match reports whether the whole of text fits.
func (p *pattern) match(text string) bool {
	first, last := &p.segments[0], &p.segments[len(p.segments)-1]
	n, ok := first.prefix(text)
	if !ok {
		return false
	}
	if text = text[n:]; len(p.segments) == 1 {
		return text == ""
	}
	for i := 1; i < len(p.segments)-1; i++ {
		end := p.segments[i].find(text)
		if end < 0 {
			return false
		}
		text = text[end:]
	}
	return last.suffix(text)
}

// prefix reports whether text begins with the segment, and for how many bytes.
func (s *segment) prefix(text string) (int, bool) {
	if s.runes == nil {
		return len(s.literal), strings.HasPrefix(text, s.literal)
	}
	at := 0
	for _, want := range s.runes {
		r, size := utf8.DecodeRuneInString(text[at:])
		if size == 0 || want != anyRune && want != r {
			return 0, false
		}
		at += size
	}
	return at, true
}

// suffix reports whether text ends with the segment.
func (s *segment) suffix(text string) bool {
	if s.runes == nil {
		return strings.HasSuffix(text, s.literal)
	}
	for i := len(s.runes) - 1; i >= 0; i-- {
		r, size := utf8.DecodeLastRuneInString(text)
		if size == 0 || s.runes[i] != anyRune && s.runes[i] != r {
			return false
		}
		text = text[:len(text)-size]
	}
	return true
}

// find returns where the first occurrence of the segment ends, -1 for none.
func (s *segment) find(text string) int {
	if s.runes == nil {
		i := strings.Index(text, s.literal)
		if i < 0 {
			return -1
		}
		return i + len(s.literal)
	}
	var few [4]uint64 // enough without allocating
	state := few[:]
	if len(s.any) > len(few) {
		state = make([]uint64, len(s.any))
	}
	state = state[:len(s.any)]
	top, bit := (len(s.runes)-1)/64, uint64(1)<<((len(s.runes)-1)%64)
	for i, r := range text {
		mask := s.masks[r]
		if mask == nil {
			mask = s.any
		}
		carry := uint64(1)
		for w := range state {
			state[w], carry = (state[w]<<1|carry)&mask[w], state[w]>>63
		}
		if state[top]&bit != 0 {
			_, size := utf8.DecodeRuneInString(text[i:])
			return i + size
		}
	}
	return -1
}
