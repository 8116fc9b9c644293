// SPDX-License-Identifier: Apache-2.0

package proven

import (
	"fmt"
	"testing"
	"time"
)

func TestTokensAreRememberedForAWhileAndAreBounded(t *testing.T) {
	var tokens Tokens
	now := time.Now()
	for i := range 3 * Most {
		tokens.Note(KeyOf(fmt.Sprint(i), "orders"), true, now)
	}
	if n := len(tokens.until); n > Most {
		t.Errorf("%d tokens are remembered, want %d at most", n, Most)
	}
	last := KeyOf(fmt.Sprint(3*Most-1), "Orders")
	if !tokens.Holds(last, now.Add(Time-1)) || tokens.Holds(last, now.Add(Time)) {
		t.Errorf("a token that was accepted does not hold for %v", Time)
	}
	tokens.Note(last, false, now)
	if tokens.Holds(last, now) || tokens.Holds(Key{}, now) {
		t.Error("a token holds that was refused, or never seen")
	}
}
