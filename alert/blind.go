// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/plural"
	"overdue/internal/servicebus/duration"
)

// MaxBlindEntities bounds the entities that a Blind names: those with the most harm come first.
const MaxBlindEntities = 50

// Blind is the data of an event of TypeBlind: from when to when a monitor saw no deadline, and what
// became of the deadlines of that time. A deadline that needed no check is not counted: its
// companion was cancelled, or another monitor had it.
type Blind struct {
	From   time.Time `json:"from"`   // when a deadline would have been seen for the last time
	To     time.Time `json:"to"`     // when the monitor saw again
	Reason string    `json:"reason"` // in words
	// SoFar says that the event did not wait any longer for the outcome of some deadlines.
	SoFar bool `json:"soFar,omitempty"`
	BlindCounts
	Entities []BlindEntity `json:"entities"` // with any of these deadlines, [MaxBlindEntities] at most
}

// BlindCounts says what became of the deadlines of a blind time.
type BlindCounts struct {
	Deadlines int `json:"deadlines"` // all that were checked afterwards, Late and Unknown included
	Late      int `json:"late"`      // missed, and found late
	Unknown   int `json:"unknown"`   // nothing shows whether they were met
	// Lost are deadlines, also later ones, that nobody watches any more: their companions were on a
	// monitor queue that was deleted, and their messages are not on their queue. Only those that this
	// process knows are counted, so there may be more.
	Lost int `json:"lost"`
}

// BlindEntity is the share of one queue or subscription, by its path.
type BlindEntity struct {
	Entity string            `json:"entity"`
	Labels map[string]string `json:"labels,omitempty"` // see EventData
	BlindCounts
}

// IsHarmful reports whether a deadline was harmed.
func (c BlindCounts) IsHarmful() bool { return c.Late+c.Unknown+c.Lost > 0 }

// Add adds the counts of an entity.
func (c *BlindCounts) Add(more BlindCounts) {
	c.Deadlines += more.Deadlines
	c.Late += more.Late
	c.Unknown += more.Unknown
	c.Lost += more.Lost
}

// SetEntities sets the counts by entity, with its labels, and their sum.
func (b *Blind) SetEntities(counts map[string]BlindCounts, labels func(entity string) map[string]string) {
	b.BlindCounts, b.Entities = BlindCounts{}, []BlindEntity{}
	for name, c := range counts {
		b.Add(c)
		b.Entities = append(b.Entities, BlindEntity{Entity: name, BlindCounts: c, Labels: labels(name)})
	}
	slices.SortFunc(b.Entities, func(x, y BlindEntity) int {
		return cmp.Or(
			cmp.Compare(y.Late+y.Unknown+y.Lost, x.Late+x.Unknown+x.Lost),
			cmp.Compare(y.Deadlines, x.Deadlines),
			cmp.Compare(x.Entity, y.Entity),
		)
	})
	b.Entities = b.Entities[:min(len(b.Entities), MaxBlindEntities)]
}

// NewBlind makes the event that a monitor was blind. host has the port of its admin port, too.
func NewBlind(namespace, host string, b Blind) Event {
	source := SourceOf(namespace, "")
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", TypeBlind, source, host, b.From.UnixMilli()))
	return Event{
		ID:      hex.EncodeToString(sum[:16]),
		Type:    TypeBlind,
		Source:  source,
		Subject: host,
		Time:    b.To.UTC(),
		Blind:   &b,
	}
}

// MergeBlind returns one event for two monitors that were blind at the same time.
func MergeBlind(e, other Event) Event {
	b, o := *e.Blind, other.Blind
	counts, labels := map[string]BlindCounts{}, map[string]map[string]string{}
	for _, one := range slices.Concat(b.Entities, o.Entities) {
		sum := counts[one.Entity]
		sum.Add(one.BlindCounts)
		counts[one.Entity], labels[one.Entity] = sum, one.Labels
	}
	sum := b.BlindCounts
	sum.Add(o.BlindCounts)
	b.SetEntities(counts, func(entity string) map[string]string { return labels[entity] })
	b.BlindCounts = sum // also of entities that are not named
	b.From, b.To, b.SoFar = duration.Earlier(b.From, o.From), duration.Later(b.To, o.To), b.SoFar || o.SoFar
	if !strings.Contains(b.Reason, o.Reason) {
		b.Reason += "; " + o.Reason
	}
	hosts := e.Subject
	if !slices.Contains(strings.Split(hosts, ", "), other.Subject) && len(hosts)+len(other.Subject) < maxHosts {
		hosts += ", " + other.Subject
	}
	return NewBlind(strings.TrimPrefix(e.Source, "sb://"), hosts, b)
}

// maxHosts bounds the names of hosts that are one subject, in bytes. It is a message-id on its way.
const maxHosts = 120

// String says what became of the deadlines.
func (c BlindCounts) String() string {
	if c == (BlindCounts{}) {
		return "no deadline fell into it"
	}
	parts := []string{plural.Of(c.Deadlines, "deadline", "deadlines")}
	if c.Late > 0 {
		parts = append(parts, fmt.Sprintf("%d missed and found late", c.Late))
	}
	if c.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", c.Unknown))
	}
	if c.Lost > 0 {
		parts = append(parts, fmt.Sprintf("at least %d lost with a deleted monitor queue", c.Lost))
	}
	return strings.Join(parts, ", ")
}

// span says from when to when.
func (b *Blind) span() string {
	return fmt.Sprintf("from %s to %s (%s)", stamp(b.From), stamp(b.To), b.To.Sub(b.From).Round(time.Second))
}

// outcome says what became of the deadlines of all entities.
func (b *Blind) outcome() string {
	if b.SoFar {
		return "so far " + b.String()
	}
	return b.String()
}

// maxBlindLines bounds the entities that a text names for one event.
const maxBlindLines = 10

// lines say what e means, for people.
func (b *Blind) lines(host string) []string {
	lines := []string{
		fmt.Sprintf("%s saw no deadline %s: %s", host, b.span(), b.Reason),
		"What fell into that time: " + b.outcome(),
	}
	for i, e := range b.Entities {
		if i == maxBlindLines {
			return append(lines, fmt.Sprintf("and %d more queues", len(b.Entities)-i))
		}
		lines = append(lines, fmt.Sprintf("- %s: %s", e.Entity, e.BlindCounts))
	}
	return lines
}
