// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

func TestDurationsAreReadAsDotNetReadsThem(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"PT0S": 0, "PT5S": 5 * time.Second, "PT1M0S": time.Minute, "P1D": day, "P1Y2M1W3DT4H5M6.789S": (365+60+7+3)*day + 4*time.Hour + 5*time.Minute + 6789*time.Millisecond,
		" PT0.0000001S ": 100, "PT0.1234567899S": 123456789, "PT86400S": day, "P0DT5S": 5 * time.Second,
		Forever: math.MaxInt64, "PT256204778H48M5.4775807S": math.MaxInt64, // as Java writes the same
		"P10675199DT2H48M5.477S": math.MaxInt64, "P106751DT23H47M16.854775807S": math.MaxInt64, "PT99999999999999999999S": math.MaxInt64,
	} {
		if got, ok := ParseISO8601(s); !ok || got != want {
			t.Errorf("ParseISO8601(%q) = %v, %v, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{
		"", "P", "PT", "5S", "-PT5S", "P-1D", "PT5", "PT5X", "P5S", "PT5D", "PT1S1M", "PT1S1S", "P1DT", "PT.5S", "PT5.S", "PT1.5M", "PT1..5S", "PT1.2.3S",
		"P1D T1S", "pt5s", "PT5S ago", "PTS", "P1DT1ST1S",
	} {
		if got, ok := ParseISO8601(s); ok {
			t.Errorf("ParseISO8601(%q) = %v, want it to be refused", s, got)
		}
	}
}

func TestDurationsAreWrittenAsDotNetWritesThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "PT0S", 99: "PT0S", 100: "PT0.0000001S", 5 * time.Second: "PT5S", 10 * time.Second: "PT10S", time.Minute: "PT1M", 90 * time.Minute: "PT1H30M", 14 * day: "P14D",
		day + time.Second/2: "P1DT0.5S", day + 50: "P1D", time.Hour + 1500*time.Millisecond: "PT1H1.5S",
	} {
		if got := FormatISO8601(d); got != want {
			t.Errorf("FormatISO8601(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestADurationIsReadAsItIsWritten(t *testing.T) {
	seed := testseed.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		d := time.Duration(rnd.Int64()>>rnd.IntN(63)) / 100 * 100
		if got, ok := ParseISO8601(FormatISO8601(d)); !ok || got != d {
			t.Fatalf("%d was written as %q and read as %d, %v", d, FormatISO8601(d), got, ok)
		}
	}
}

func TestPeopleReadShortDurations(t *testing.T) {
	for d, want := range map[time.Duration]struct{ exact, rounded string }{
		0:                            {"0s", "0s"},
		100 * time.Millisecond:       {"100ms", "100ms"},
		1234567 * time.Microsecond:   {"1.234567s", "1.235s"},
		10 * time.Second:             {"10s", "10s"},
		time.Minute:                  {"1m", "1m"},
		90 * time.Second:             {"1m30s", "1m30s"},
		20 * time.Minute:             {"20m", "20m"},
		61*time.Minute + time.Second: {"1h1m1s", "1h1m"},
		12 * time.Hour:               {"12h", "12h"},
		day:                          {"24h", "24h"},
		day + time.Second:            {"24h0m1s", "24h"},
		30 * day:                     {"30d", "30d"},
		2*day + 90*time.Minute:       {"2d1h30m", "2d2h"},
		-2 * time.Hour:               {"-2h", "-2h"},
		-3*day - time.Hour:           {"-3d1h", "-3d1h"},
		math.MinInt64:                {"-106751d23h47m16.854775808s", "-106751d23h47m16.854775808s"},
	} {
		if got := Format(d); got != want.exact {
			t.Errorf("Format(%d) = %q, want %q", d, got, want.exact)
		}
		if got := FormatRounded(d); got != want.rounded {
			t.Errorf("FormatRounded(%d) = %q, want %q", d, got, want.rounded)
		}
		if got, err := Parse(Format(d)); d != math.MinInt64 && (err != nil || got != d) {
			t.Errorf("Parse(Format(%d)) = %d, %v", d, got, err)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{Forever, "PT5S", "P1Y2M1W3DT4H5M6.789S", "PT99999999999999999999S", "P1DT", "PT.5S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := ParseISO8601(s)
		if !ok {
			return
		}
		if d < 0 {
			t.Fatalf("ParseISO8601(%q) = %v, want nothing negative", s, d)
		}
		d = d / 100 * 100
		if again, ok := ParseISO8601(FormatISO8601(d)); !ok || again != d {
			t.Fatalf("%q is %d, was written as %q and read as %d, %v", s, d, FormatISO8601(d), again, ok)
		}
	})
}

func TestTimesToLiveAreWholeMillisecondsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Millisecond, time.Millisecond: time.Millisecond, time.Millisecond + 1: 2 * time.Millisecond,
		math.MaxInt64: time.Duration(math.MaxInt64).Truncate(time.Millisecond),
	} {
		if got := RoundUp(d); got != want {
			t.Errorf("RoundUp(%d) = %d, want %d", d, got, want)
		}
	}
}

func TestTheShorterTimeToLiveWinsAndZeroIsUnlimited(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 3, 3}, {3, 5, 3}} {
		if got := Shorter(c.a, c.b); got != c.want {
			t.Errorf("Shorter(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
