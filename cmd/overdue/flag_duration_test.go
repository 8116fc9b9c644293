// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestEveryDurationFlagReadsWhatTheConfigurationReads(t *testing.T) {
	found := 0
	walk((&program{}).rootCommand(), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			if _, ok := f.Value.(*flagValue); ok {
				return // the configuration reads it
			}
			found++
			value, ok := f.Value.(*checkedFlag[time.Duration])
			if !ok {
				t.Errorf("%s --%s is a %T", c.CommandPath(), f.Name, f.Value)
				return
			}
			for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "PT1M30S": 90 * time.Second} {
				err := f.Value.Set(text)
				if err != nil && strings.Contains(err.Error(), "out of bounds") {
					continue // it was read
				}
				if err != nil || *value.value != want {
					t.Errorf("%s --%s %s: %v, %v; want %v", c.CommandPath(), f.Name, text, *value.value, err, want)
				}
			}
			if err := f.Value.Set("30"); err == nil {
				t.Errorf("%s --%s 30 is taken", c.CommandPath(), f.Name)
			}
		})
	})
	if found == 0 {
		t.Error("no flag is a duration")
	}
}

// A copy keeps the deadline of its message unless a flag replaces it, so 0 must not pass for none.
func TestACopyHasNoDeadlineOfZero(t *testing.T) {
	for _, flag := range []string{"ttl", "within", "delay"} {
		err := (&program{}).dlqResubmitCommand().Flags().Set(flag, "0s")
		if err == nil || !strings.Contains(err.Error(), "0s is out of bounds") {
			t.Errorf("--%s 0s: %v, want it refused", flag, err)
		}
	}
}
