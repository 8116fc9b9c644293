// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"overdue/internal/operator/messages"
	"overdue/monitor/mute"
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

// A copy keeps the deadline of its message unless a flag replaces it, and a message without a flag
// has none, so 0 must not pass for no flag.
func TestADeadlineOfZeroIsNotTakenForNone(t *testing.T) {
	p := &program{}
	for cmd, flags := range map[*cobra.Command][]string{dlqResubmit().cmd: {"ttl", "within", "delay"}, p.sendCommand(): {"ttl", "within", "complete-within"}} {
		for _, flag := range flags {
			err := cmd.Flags().Set(flag, "0s")
			if err == nil || !strings.Contains(err.Error(), "0s is out of bounds") {
				t.Errorf("%s --%s 0s: %v, want it refused", cmd.Name(), flag, err)
			}
		}
	}
}

func TestAMuteSaysWhichTextIsTooLong(t *testing.T) {
	for _, flag := range []string{"reason", "as"} {
		flags := (&program{}).muteCommand().Flags()
		if err := flags.Set(flag, strings.Repeat("ä", mute.MaxText)); err != nil {
			t.Error(err)
		}
		err := flags.Set(flag, strings.Repeat("ä", mute.MaxText+1))
		if err == nil || !strings.Contains(err.Error(), "the value has 501 characters; it must have at most 500") {
			t.Errorf("--%s: %v, want it refused", flag, err)
		}
	}
}

// The SDK makes thirteen hours of a hundred days.
func TestALifeThatTheSDKCannotStateIsNotSent(t *testing.T) {
	for ttl, refused := range map[time.Duration]bool{messages.MaxTTL: false, messages.MaxTTL + time.Millisecond: true, 100 * 24 * time.Hour: true} {
		if err := (&program{}).sendCommand().Flags().Set("ttl", ttl.String()); (err != nil) != refused {
			t.Errorf("--ttl %v: %v, want it refused: %v", ttl, err, refused)
		}
	}
}
