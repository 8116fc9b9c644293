// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"fmt"
	"unicode/utf8"
)

// Hidden names the first character of b that should have been escaped, and its position, or returns
// "". Line ends and tabs are allowed. It is for tests.
func Hidden(b []byte) string {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Sprintf("the byte %#x at %d", b[i], i)
		}
		if hides(r) && r != '\n' && r != '\t' {
			return fmt.Sprintf("%U at %d, in %q", r, i, b[max(0, i-20):min(len(b), i+20)])
		}
		i += n
	}
	return ""
}
