// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
)

// Bounds of what can be measured.
const (
	benchMaxCases    = 20
	benchMinDeadline = 100 * time.Millisecond
	benchMaxDeadline = 10 * time.Minute
	benchMaxPayload  = 64 << 10 // bytes; several fit into a batch
)

// benchFlags adds flags that several measurements have. Each returns a function that reads its
// value, whose errors name the flag.
type benchFlags struct{ cmd *cobra.Command }

// numbers is a list of whole numbers.
func (f benchFlags) numbers(flag, def string, least, most int, example,
	usage string) func() ([]int, error) {
	text := f.cmd.Flags().String(flag, def, usage)
	return func() ([]int, error) {
		var all []int
		for _, one := range strings.Split(*text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(one))
			if err != nil {
				return nil, fmt.Errorf("--%s: %q is not a whole number; write a list like %s", flag,
					config.Clip(one), example)
			}
			if err := within(flag, n, least, most); err != nil {
				return nil, err
			}
			all = append(all, n)
		}
		if len(all) > benchMaxCases {
			return nil, fmt.Errorf("--%s: %d numbers are too many; give %d at most", flag, len(all),
				benchMaxCases)
		}
		return all, nil
	}
}

// payload is the size of a body.
func (f benchFlags) payload() func() (int, error) {
	text := f.cmd.Flags().String("payload", "256", "size of a message's body in bytes")
	return func() (int, error) {
		size, err := config.ParseSize(*text)
		if err != nil {
			return 0, fmt.Errorf("--payload: %w", err)
		}
		if size > benchMaxPayload {
			return 0, fmt.Errorf("--payload: %s is out of bounds; it must be between 0 and %s",
				*text, config.FormatSize(benchMaxPayload))
		}
		return int(size), nil
	}
}

// rounds is how many rounds there are, and how long each of the compared is measured in one. The
// function only checks them.
func (f benchFlags) rounds(n *int, span *time.Duration, compared string) func() error {
	f.cmd.Flags().IntVar(n, "rounds", 7, "how many rounds, 1 to 1000")
	durationVar(f.cmd.Flags(), span, "span", 500*time.Millisecond,
		"how long each "+compared+" is measured in a round")
	return func() error {
		if err := within("rounds", *n, 1, 1000); err != nil {
			return err
		}
		return within("span", *span, 10*time.Millisecond, time.Minute)
	}
}

// directory is where durable brokers have their directories meanwhile.
func (f benchFlags) directory() func() (string, error) {
	dir := f.cmd.Flags().String("dir", ".",
		"where a broker that is measured has its directory meanwhile, on the disk to measure")
	return func() (string, error) {
		if info, err := os.Stat(*dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("--dir: %q is no directory", config.Clip(*dir))
		}
		return filepath.Abs(*dir)
	}
}

// companions is the kind of companions, as the setting.
func (f benchFlags) companions(def string) func() (string, error) {
	setting := config.SettingAt("companions")
	text := f.cmd.Flags().String("companions", def,
		"the companions that are written: "+strings.Join(setting.Choices, ", "))
	return func() (string, error) {
		if _, err := setting.Parse(*text); err != nil {
			return "", fmt.Errorf("--companions: %w", err)
		}
		return *text, nil
	}
}

// parseDeadlineRange reads a range like 5s-15s.
func parseDeadlineRange(text string) (shortest, longest time.Duration, err error) {
	first, last, ok := strings.Cut(text, "-")
	var errs [2]error
	shortest, errs[0] = config.ParseDuration(strings.TrimSpace(first))
	longest, errs[1] = config.ParseDuration(strings.TrimSpace(last))
	if !ok || errors.Join(errs[0], errs[1]) != nil {
		return 0, 0, fmt.Errorf("--deadline-range: %q is not a range; write one like 5s-15s",
			config.Clip(text))
	}
	if shortest < benchMinDeadline || longest > benchMaxDeadline || shortest > longest {
		return 0, 0, fmt.Errorf("--deadline-range: %s is out of bounds; it must go up, and lie between %s and %s", config.Clip(text), benchMinDeadline, benchMaxDeadline)
	}
	return shortest, longest, nil
}

// within checks that a flag's value lies between bounds.
func within[T int | time.Duration](flag string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("--%s: %v is out of bounds; it must be between %v and %v", flag, v, least,
			most)
	}
	return nil
}
