// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
)

// Convert returns v as a value of that kind, where there is a way. Numbers convert among one
// another while nothing but a fraction is lost, anything converts to a string, and a string to the
// value that it spells.
func (v Value) Convert(to Kind) (Value, bool) {
	switch {
	case v.kind == to, v.kind == Null:
		return v, true
	case to == String:
		s, ok := v.format()
		return StringValue(s), ok
	case v.kind == String:
		return parseAs(strings.TrimSpace(v.s), to)
	case to == Float && v.numeric():
		return FloatValue(v.float()), true
	case to == Decimal && v.kind == Float:
		return decimalOfFloat(v.Float())
	case to == Decimal && v.numeric():
		return DecimalValue(v.decimal()), true
	case (to == Int || to == Uint) && v.kind == Decimal:
		whole := new(apd.Decimal)
		if _, err := decimals.RoundToIntegralValue(whole, v.d); err == nil {
			return parseAs(whole.Text('f'), to)
		}
	case (to == Int || to == Uint) && v.kind == Float:
		f := math.RoundToEven(v.Float()) // as System.Convert does
		if f >= math.MinInt64 && f < math.MaxInt64 {
			return IntValue(int64(f)), true
		}
	case (to == Int || to == Uint) && (v.kind == Int || v.kind == Uint):
		return v, true
	}
	return Value{}, false
}

func parseAs(s string, to Kind) (Value, bool) {
	switch to {
	case Bool:
		if strings.EqualFold(s, "true") {
			return BoolValue(true), true
		}
		return BoolValue(false), strings.EqualFold(s, "false")
	case Int, Uint:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return IntValue(n), true
		}
		n, err := strconv.ParseUint(s, 10, 64)
		return UintValue(n), err == nil
	case Decimal:
		return parseDecimal(s)
	case Float:
		f, err := strconv.ParseFloat(s, 64)
		return FloatValue(f), err == nil
	case GUID:
		return parseGUID(s)
	case Time:
		for _, format := range [...]string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(format, s); err == nil {
				return TimeValue(t), true
			}
		}
	case Duration:
		return parseSpan(s)
	}
	return Value{}, false
}

func parseGUID(s string) (Value, bool) {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	var id [16]byte
	if len(s) != 32 {
		return Value{}, false
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return Value{}, false
	}
	return GUIDValue(id), true
}

const (
	ticksPerSecond = uint64(time.Second / tick)
	ticksPerDay    = 24 * 60 * 60 * ticksPerSecond
)

// formatSpan writes ticks as System.TimeSpan does: [-][d.]hh:mm:ss[.fffffff].
func formatSpan(ticks int64) string {
	var b strings.Builder
	n := uint64(ticks)
	if ticks < 0 {
		b.WriteByte('-')
		n = -n
	}
	if days := n / ticksPerDay; days > 0 {
		fmt.Fprintf(&b, "%d.", days)
	}
	n %= ticksPerDay
	seconds := n / ticksPerSecond
	fmt.Fprintf(&b, "%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	if rest := n % ticksPerSecond; rest > 0 {
		fmt.Fprintf(&b, ".%07d", rest)
	}
	return b.String()
}

// parseSpan reads what formatSpan writes.
func parseSpan(s string) (Value, bool) {
	rest, negative := strings.CutPrefix(s, "-")
	clock, days := rest, uint64(0)
	if before, after, found := strings.Cut(rest, "."); found && !strings.Contains(before, ":") {
		n, err := strconv.ParseUint(before, 10, 24)
		if err != nil {
			return Value{}, false
		}
		days, clock = n, after
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return Value{}, false
	}
	seconds, fraction, _ := strings.Cut(parts[2], ".")
	if len(fraction) > 7 {
		return Value{}, false
	}
	total := days * ticksPerDay
	for i, f := range [...]struct {
		text        string
		below, each uint64
	}{{parts[0], 24, 3600 * ticksPerSecond}, {parts[1], 60, 60 * ticksPerSecond}, {seconds, 60, ticksPerSecond},
		{(fraction + "0000000")[:7], ticksPerSecond, 1}} {
		n, err := strconv.ParseUint(f.text, 10, 32)
		if err != nil || n >= f.below || i == 3 && n > 0 && fraction == "" {
			return Value{}, false
		}
		total += n * f.each
	}
	switch {
	case total > math.MaxInt64:
		return Value{}, false
	case negative:
		total = -total
	}
	return Value{kind: Duration, n: total}, true
}
