// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheBannerFitsIntoATerminal(t *testing.T) {
	p := startTest(t, "broker: {autoCreate: true}\nmonitor: {entities: [{queue: orders-of-the-shop-in-europe}, {queue: orders-of-the-shop-in-asia}, {queue: bills}]}\n")
	var b bytes.Buffer
	p.banner(&b)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > bannerWidth && !strings.HasPrefix(line, "Endpoint=") {
			t.Errorf("a line has %d columns, want %d at most: %s", n, bannerWidth, line)
		}
	}
	if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), "monitored: orders-of-the-shop-in-europe, orders-of-the-shop-in-asia") {
		t.Errorf("the banner does not say what is monitored:\n%s", &b)
	}
}
