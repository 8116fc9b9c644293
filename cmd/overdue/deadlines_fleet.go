// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"overdue/internal/escape"
)

// fleetDeadlines is what all monitors have together, as they have reported it to Redis.
type fleetDeadlines struct {
	Monitors int           `json:"monitors"` // that have reported lately
	Entities []fleetEntity `json:"entities"`
	Error    string        `json:"error,omitempty"` // why nothing is known
}

// fleetEntity is what they have of one entity.
type fleetEntity struct {
	Entity string `json:"entity"`
	InHand int64  `json:"inHand"` // deadlines that have come and that no monitor is done with
	Missed int64  `json:"missed"` // since Redis has counted
}

// fleetDeadlines asks Redis for all entities, or the one that is named. It is nil without a Redis; one that does not answer keeps nothing
// else from being shown.
func (d *patient) fleetDeadlines(ctx context.Context, entity string) *fleetDeadlines {
	if d.cfg.Redis == "" {
		return nil
	}
	f := &fleetDeadlines{Entities: []fleetEntity{}}
	store, err := d.redis()
	if err != nil {
		f.Error = err.Error()
		return f
	}
	defer func() { _ = store.Close() }() // it was only read
	totals, err := store.View().Read(ctx)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	f.Monitors = totals.Monitors
	by := map[string]*fleetEntity{}
	of := func(name string) *fleetEntity {
		if by[name] == nil {
			by[name] = &fleetEntity{Entity: name}
		}
		return by[name]
	}
	for name, n := range totals.Outstanding {
		of(name).InHand = n
	}
	for name, n := range totals.Missed {
		of(name).Missed = n
	}
	for name, e := range by {
		if entity == "" || strings.EqualFold(name, entity) {
			f.Entities = append(f.Entities, *e)
		}
	}
	slices.SortFunc(f.Entities, func(a, b fleetEntity) int { return strings.Compare(a.Entity, b.Entity) })
	return f
}

// write prints f, if there is one, for who reads it.
func (f *fleetDeadlines) write(w io.Writer) {
	switch {
	case f == nil:
		return
	case f.Error != "":
		fmt.Fprintf(w, "\nWhat the monitors have together is not known: %s.\n", escape.Text(f.Error))
		return
	case f.Monitors == 0:
		fmt.Fprintf(w, "\nNo monitor has reported to Redis lately.\n")
	case f.Monitors == 1:
		fmt.Fprintf(w, "\nOne monitor has reported to Redis:\n")
	default:
		fmt.Fprintf(w, "\n%d monitors have reported to Redis, together:\n", f.Monitors)
	}
	if len(f.Entities) > 0 {
		fmt.Fprintln(w, "ENTITY\tIN HAND\tMISSED")
	}
	for _, e := range f.Entities {
		fmt.Fprintf(w, "%s\t%d\t%d\n", escape.Text(e.Entity), e.InHand, e.Missed)
	}
}
