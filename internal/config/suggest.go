// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// Nearest is the candidate that somebody who wrote word most likely meant, or "".
// Upper and lower case and separators do not count; otherwise one letter in three may be wrong.
func Nearest(word string, candidates []string) string {
	// A word that is much longer than any key is no misspelling, and would cost time.
	if len(word) > 80 {
		return ""
	}
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
	}
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(plain(word), plain(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their neighbour
// to turn a into b.
func distance(a, b string) int {
	before, previous := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
