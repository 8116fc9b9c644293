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

// Bounds of a digest. It lies on the monitor queue, which anybody can write who has the right to send there.
const (
	maxDigest  = 64 << 10 // bytes
	maxSamples = 10
	maxLabels  = 8
)

// A Digest is what is kept of events until somebody is told of them together, as a message on the monitor queue that
// becomes due when the page is. One without events reminds of a group that has been told of, so that its end is told too.
type Digest struct {
	Sink     string            `json:"sink"`
	Labels   map[string]string `json:"labels"` // of the group
	Count    int               `json:"count"`  // events
	First    time.Time         `json:"first"`  // when the first and the last of them happened
	Last     time.Time         `json:"last"`
	Oldest   *Event            `json:"oldest,omitempty"` // the one with the earliest deadline
	WorstLag int64             `json:"worstLagMs"`
	Samples  []Event           `json:"samples,omitempty"` // the first of them
	Attempt  int               `json:"attempt,omitempty"` // how often it was written anew because the sink did not take it

	// UnknownSince is since when it has only met monitors whose configuration does not have its sink; zero = the last one did.
	UnknownSince time.Time `json:"strange,omitzero"`

	// Of what the sink has been told before:
	Since time.Time `json:"since,omitzero"` // since when the group fires
	Total int       `json:"total,omitempty"`
}

// ParseDigest reads what Marshal has written, or somebody else.
func ParseDigest(body []byte) (Digest, error) {
	if len(body) > maxDigest {
		return Digest{}, fmt.Errorf("alert: digest of %d bytes, at most %d are read", len(body), maxDigest)
	}
	var d Digest
	if err := json.Unmarshal(body, &d); err != nil {
		return Digest{}, fmt.Errorf("alert: digest cannot be read: %w", err)
	}
	switch {
	case d.Sink == "":
		return Digest{}, errors.New("alert: digest names no sink")
	case d.Count < 0 || d.Total < 0 || d.Attempt < 0:
		return Digest{}, errors.New("alert: digest counts below zero")
	case len(d.Samples) > maxSamples || len(d.Labels) > maxLabels:
		return Digest{}, fmt.Errorf("alert: digest has %d samples and %d labels, at most %d and %d are read", len(d.Samples), len(d.Labels), maxSamples, maxLabels)
	case d.Count > 0 && (d.Oldest == nil || len(d.Samples) == 0):
		return Digest{}, errors.New("alert: digest has events but shows none")
	}
	return d, nil
}

// add counts e in.
func (d *Digest) add(e Event) {
	d.merge(Digest{
		Count: 1, First: e.Time, Last: e.Time, Oldest: &e, WorstLag: e.Data.LagMs, Samples: []Event{e},
	})
}

// merge counts in what other has.
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

// key tells groups of one sink apart.
func key(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for name, value := range labels {
		pairs = append(pairs, name+"\x00"+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\x01")
}
