// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"

	"overdue/internal/servicebus/duration"
)

// durationFlag is a flag that reads every form of a duration that the configuration reads: 30s,
// 7d, PT30S.
type durationFlag struct{ value *time.Duration }

// durationVar defines such a flag.
func durationVar(f *pflag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	f.Var(durationFlag{value}, name, usage)
}

func (d durationFlag) Set(text string) error {
	parsed, err := duration.Parse(text)
	if err != nil {
		return err
	}
	*d.value = parsed
	return nil
}

func (d durationFlag) String() string {
	if d.value == nil {
		return "" // pflag asks the zero value for its text
	}
	return d.value.String()
}

func (durationFlag) Type() string { return "duration" }
