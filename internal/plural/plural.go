// SPDX-License-Identifier: Apache-2.0

// Package plural counts things in sentences: 1 companion is due, 2 companions are due.
package plural

import "fmt"

// Of returns n and the words for that many: one after 1, many after any other number.
func Of[N ~int | ~int64](n N, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
