// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestDurationsAreReadAsPeopleWriteThem(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "-5ms": -5 * time.Millisecond, "0": 0, "1.5h": 90 * time.Minute,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "0d": 0, "-2d1s": -2*day - time.Second,
		"PT30S": 30 * time.Second, "PT5M": 5 * time.Minute, "P2W": 14 * day, "P7D": 7 * day, "P1DT2H": 26 * time.Hour, "PT0.5S": 500 * time.Millisecond, "-PT5S": -5 * time.Second,
		Forever: math.MaxInt64, "-" + Forever: -math.MaxInt64, "106751d": 106751 * day,
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for s, want := range map[string]error{
		"30": ErrUnit, "-1.5": ErrUnit, "": ErrSyntax, "d": ErrSyntax, "-": ErrSyntax, "--5s": ErrSyntax, "1.5d": ErrSyntax, "1d-1s": ErrSyntax, "1d+1s": ErrSyntax, "1d2d": ErrSyntax,
		"12h1d": ErrSyntax, "P": ErrSyntax, "PT": ErrSyntax, "PT5ms": ErrSyntax, "PNaND": ErrSyntax, "tomorrow": ErrSyntax, "7D": ErrSyntax, "7 d": ErrSyntax, "P1M": ErrSyntax, "P1Y": ErrSyntax, "-P1Y2M": ErrSyntax,
		"106752d": ErrSyntax, "106751d24h": ErrSyntax, "99999999999d": ErrSyntax,
	} {
		if got, err := Parse(s); !errors.Is(err, want) {
			t.Errorf("Parse(%q) = %v, %v, want the error %v", s, got, err, want)
		}
	}
}
