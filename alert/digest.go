// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of a digest. Anyone with the right to send can write to the monitor queue.
const (
	maxDigest  = 64 << 10 // bytes
	maxSamples = 10
	maxLabels  = 32
)

// A Digest summarizes events for their next notification. It is a scheduled message on the monitor
// queue. A digest without events is a reminder of a firing group, which has to be resolved later.
type Digest struct {
	Sink     string            `json:"sink"`
	Labels   map[string]string `json:"labels"` // of the group
	Count    int               `json:"count"`  // events
	First    time.Time         `json:"first"`  // time of the first and of the last of them
	Last     time.Time         `json:"last"`
	Oldest   *Event            `json:"oldest,omitempty"` // the one with the earliest deadline
	WorstLag int64             `json:"worstLagMs"`
	Samples  []Event           `json:"samples,omitempty"` // the first of them
	Attempt  int               `json:"attempt,omitempty"` // how often it was kept again because the sink did not accept it

	// UnknownSince is when the first of the latest monitors without this sink in their configuration
	// received the digest; zero: the latest monitor has the sink.
	UnknownSince time.Time `json:"strange,omitzero"`

	// State that the sink has already:
	Since time.Time `json:"since,omitzero"` // when the group began to fire
	Total int       `json:"total,omitempty"`
}

// ParseDigest reads the JSON form of a digest, which may come from outside.
func ParseDigest(body []byte) (Digest, error) {
	if len(body) > maxDigest {
		return Digest{}, fmt.Errorf("alert: digest has %d bytes, want at most %d", len(body), maxDigest)
	}
	var d Digest
	if err := json.Unmarshal(body, &d); err != nil {
		return Digest{}, fmt.Errorf("alert: digest is not valid JSON: %w", err)
	}
	switch {
	case d.Sink == "":
		return Digest{}, errors.New("alert: digest names no sink")
	case d.Count < 0 || d.Total < 0 || d.Attempt < 0:
		return Digest{}, errors.New("alert: digest has a negative count")
	case len(d.Samples) > maxSamples || len(d.Labels) > maxLabels:
		return Digest{}, fmt.Errorf("alert: digest has %d samples and %d labels, want at most %d and %d", len(d.Samples), len(d.Labels), maxSamples, maxLabels)
	case d.Count > 0 && (d.Oldest == nil || len(d.Samples) == 0):
		return Digest{}, errors.New("alert: digest counts events but has no sample")
	}
	return d, nil
}

// add adds e.
func (d *Digest) add(e Event) {
	d.merge(Digest{
		Count: 1, First: e.Time, Last: e.Time, Oldest: &e, WorstLag: e.Data.LagMs, Samples: []Event{e},
	})
}

// merge adds the events of other.
func (d *Digest) merge(other Digest) {
	d.Attempt = max(d.Attempt, other.Attempt)
	if other.Count == 0 {
		return
	}
	if d.Count == 0 {
		d.First, d.Last = other.First, other.Last
	}
	d.Count += other.Count
	if other.First.Before(d.First) {
		d.First = other.First
	}
	if other.Last.After(d.Last) {
		d.Last = other.Last
	}
	d.WorstLag = max(d.WorstLag, other.WorstLag)
	if d.Oldest == nil || other.Oldest.Data.Deadline.Before(d.Oldest.Data.Deadline) {
		d.Oldest = other.Oldest
	}
	d.Samples = slices.Concat(d.Samples, other.Samples)
	slices.SortStableFunc(d.Samples, func(a, b Event) int { return a.Data.Deadline.Compare(b.Data.Deadline) })
	d.Samples = d.Samples[:min(len(d.Samples), samples)]
}

// key identifies a group of a sink.
func key(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for name, value := range labels {
		pairs = append(pairs, name+"\x00"+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\x01")
}
