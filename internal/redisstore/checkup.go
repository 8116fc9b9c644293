// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Checkup is the state of a Redis, for its operator.
type Checkup struct {
	RoundTrip time.Duration // of the fastest of a few questions
	Servers   []Server      // that are written to; none where INFO is denied
	Denied    []string      // commands of ours that the user may not send, lower case
	KeyDenied bool          // our keys are not among those that the user may touch
	Refusal   string        // why something else was refused, as Redis says it; "" = nothing was
}

// A Server is one Redis, as INFO describes it.
type Server struct {
	Version           string
	Replica           bool
	UsedBytes, Memory int64 // Memory is the bound; 0 = none
	Eviction          string
}

// Checkup asks Redis for how it is, and tries every command that is sent to it, on keys of its own
// that live for seconds. An error means that it cannot be reached, or lets nobody in.
func (s *Store) Checkup(ctx context.Context) (*Checkup, error) {
	var c Checkup
	for range 3 {
		began := time.Now()
		if err := s.Ping(ctx); err != nil && !c.deny("ping", err) {
			return nil, err
		}
		if took := time.Since(began); c.RoundTrip == 0 || took < c.RoundTrip {
			c.RoundTrip = took // the first one dials
		}
	}
	texts, err := infos(ctx, s.client)
	if err != nil && !c.deny("info", err) {
		return nil, fmt.Errorf("redis at %s: %w", s.Hosts(), err)
	}
	for _, text := range texts {
		c.Servers = append(c.Servers, readInfo(text))
	}
	for _, t := range trials(s.key("{doctor}", "trial")) {
		err := try(ctx, s.client, t)
		if err != nil && !c.deny(t.command, err) {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("redis at %s: %w", s.Hosts(), err)
			}
			c.Refusal = err.Error()
		}
	}
	slices.Sort(c.Denied)
	c.Denied = slices.Compact(c.Denied)
	return &c, nil
}

// deny notes that a command was not permitted, if that is what err says.
func (c *Checkup) deny(command string, err error) bool {
	text := err.Error()
	i := strings.Index(text, "NOPERM")
	switch {
	case i < 0:
		return false
	case strings.Contains(text[i:], "key"):
		c.KeyDenied = true
	default:
		c.Denied = append(c.Denied, command)
	}
	return true
}

// readInfo describes a server by its answer to INFO. A missing value stays zero.
func readInfo(text string) Server {
	fields := infoFields(text)
	used, _ := strconv.ParseInt(fields["used_memory"], 10, 64) // 0 = not stated
	limit, _ := strconv.ParseInt(fields["maxmemory"], 10, 64)
	return Server{
		Version:   fields["redis_version"],
		Replica:   fields["role"] == "slave",
		UsedBytes: used,
		Memory:    limit,
		Eviction:  fields["maxmemory_policy"],
	}
}

// infoFields are the lines of an answer to INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields
}
