// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"overdue/internal/config"
)

// Bounds of what can be measured.
const (
	benchMaxCases    = 20
	benchMinDeadline = 100 * time.Millisecond
	benchMaxDeadline = 10 * time.Minute
	benchMaxPayload  = 64 << 10 // bytes; several fit into a batch
)

// listVar defines a flag that reads several values, with commas between them.
func listVar[T any](f *pflag.FlagSet, values *[]T, name, byDefault, usage string, parse func(text string) (T, error)) {
	checkedVar(f, values, name, byDefault, "list", usage, func(text string) (all []T, _ error) {
		for one := range strings.SplitSeq(text, ",") {
			v, err := parse(one)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		if len(all) > benchMaxCases {
			return nil, fmt.Errorf("%d values are too many; give %d at most", len(all), benchMaxCases)
		}
		return all, nil
	})
}

// payloadVar defines the flag of the size of a body.
func payloadVar(f *pflag.FlagSet, bytes *int) {
	checkedVar(f, bytes, "payload", "256", "size", "size of a message's body in bytes", func(text string) (int, error) {
		size, err := config.ParseSize(text)
		if err == nil && size > benchMaxPayload {
			err = fmt.Errorf("%s is out of bounds; it must be between 0 and %s", text, config.FormatSize(benchMaxPayload))
		}
		return int(size), err
	})
}

// roundsVar defines the flags of how many rounds there are, and how long each of the compared is
// measured in one.
func roundsVar(f *pflag.FlagSet, n *int, span *time.Duration, compared string) {
	numberVar(f, n, "rounds", 7, 1, 1000, "how many rounds")
	durationVar(f, span, "span", 500*time.Millisecond, 10*time.Millisecond, time.Minute,
		"how long each "+compared+" is measured in a round")
}

// directoryVar defines the flag of where durable brokers have their directories meanwhile.
func directoryVar(f *pflag.FlagSet, dir *string) {
	const usage = "where a broker that is measured has its directory meanwhile, on the disk to measure"
	checkedVar(f, dir, "dir", ".", "path", usage, func(text string) (string, error) {
		if info, err := os.Stat(text); err != nil || !info.IsDir() {
			return "", fmt.Errorf("%q is no directory", config.Clip(text))
		}
		return filepath.Abs(text)
	})
}

// companionsVar defines the flag of the kind of companions, as the setting.
func companionsVar(cmd *cobra.Command, kind *string, byDefault string) {
	choiceVar(cmd, kind, "companions", byDefault, config.SettingAt("companions").Choices, "the companions that are written")
}

// A deadlineRange is what deadlines are spread over.
type deadlineRange struct{ shortest, longest time.Duration }

// deadlineRangeVar defines the flag of a range like 5s-15s. It begins at a send.
func deadlineRangeVar(f *pflag.FlagSet, r *deadlineRange, send string) {
	checkedVar(f, r, "deadline-range", "5s-15s", "range", "deadlines are spread evenly over this range after "+send, parseDeadlineRange)
}

func parseDeadlineRange(text string) (r deadlineRange, err error) {
	first, last, ok := strings.Cut(text, "-")
	var errs [2]error
	r.shortest, errs[0] = config.ParseDuration(strings.TrimSpace(first))
	r.longest, errs[1] = config.ParseDuration(strings.TrimSpace(last))
	switch {
	case !ok || errors.Join(errs[0], errs[1]) != nil:
		return r, fmt.Errorf("%q is not a range; write one like 5s-15s", config.Clip(text))
	case r.shortest < benchMinDeadline || r.longest > benchMaxDeadline || r.shortest > r.longest:
		return r, fmt.Errorf("%s is out of bounds; it must go up, and lie between %s and %s", config.Clip(text), shown(benchMinDeadline), shown(benchMaxDeadline))
	}
	return r, nil
}
