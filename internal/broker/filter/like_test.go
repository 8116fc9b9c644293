// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"math/rand/v2"
	"strings"
	"testing"

	"overdue/internal/testing/testseed"
)

// fits is what LIKE means, by its definition and without any thought of speed.
func fits(pattern, text []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(text) == 0
	case pattern[0] == '%':
		return fits(pattern[1:], text) || len(text) > 0 && fits(pattern, text[1:])
	}
	return len(text) > 0 && (pattern[0] == '_' || pattern[0] == text[0]) && fits(pattern[1:], text[1:])
}

func TestLikeMatchesWhatItsDefinitionDoes(t *testing.T) {
	seed := testseed.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	draw := func(alphabet string, most int) string {
		runes, out := []rune(alphabet), make([]rune, rnd.IntN(most))
		for i := range out {
			out[i] = runes[rnd.IntN(len(runes))]
		}
		return string(out)
	}
	matched := 0
	for range 50_000 {
		pattern, text := draw("aé_%%", 8), draw("aé", 9)
		p, err := parsePattern(pattern, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, want := p.match(text), fits([]rune(pattern), []rune(text))
		if got != want {
			t.Fatalf("%q LIKE %q = %v, want %v", text, pattern, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 5000 {
		t.Errorf("%d of 50000 matched, want enough to mean something", matched)
	}
}

func TestLikeFindsWhatIsLong(t *testing.T) {
	p, err := parsePattern("%_"+strings.Repeat("ab", 200)+"_%", -1)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		strings.Repeat("ab", 202):                                   true,
		"ab" + strings.Repeat("ab", 200) + "x":                      true,
		strings.Repeat("ab", 200) + "x":                             false,
		strings.Repeat("ab", 199) + "ba" + "ab":                     false,
		strings.Repeat("ba", 150) + strings.Repeat("ab", 200) + "é": true,
	} {
		if got := p.match(text); got != want {
			t.Errorf("a text of %d bytes matches: %v, want %v", len(text), got, want)
		}
	}
}

// A text that is nearly a match, everywhere.
func BenchmarkLikeWorstCase(b *testing.B) {
	p, err := parsePattern("%"+strings.Repeat("_a", 250)+"b%"+strings.Repeat("a", 400)+"b%", -1)
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("a", 64<<10)
	for b.Loop() {
		if p.match(text) {
			b.Fatal("matched")
		}
	}
}
