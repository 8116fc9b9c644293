// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"slices"
	"strings"

	"overdue/internal/redisstore"
)

// A Fleet is what all monitors reported to Redis, added up.
type Fleet struct {
	Monitors int           `json:"monitors"` // that reported lately
	Entities []FleetEntity `json:"entities"` // by name
	Error    string        `json:"error,omitempty"`
}

// A FleetEntity is what they reported of one entity.
type FleetEntity struct {
	Entity     string `json:"entity"`
	InProgress int64  `json:"inProgress"` // due deadlines with which no monitor has finished
	Missed     int64  `json:"missed"`     // since Redis began to count
}

// readFleet asks Redis for one entity, or for all of them. It returns nil without Redis. If Redis
// does not answer, it says so in Error: everything else is still worth showing.
func readFleet(ctx context.Context, redis *redisstore.Store, entity string) *Fleet {
	if redis == nil {
		return nil
	}
	f := &Fleet{Entities: []FleetEntity{}}
	totals, err := redis.View().Read(ctx)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	f.Monitors = totals.Monitors
	byName := map[string]*FleetEntity{}
	of := func(name string) *FleetEntity {
		if byName[name] == nil {
			byName[name] = &FleetEntity{Entity: name}
		}
		return byName[name]
	}
	for name, n := range totals.Outstanding {
		of(name).InProgress = n
	}
	for name, n := range totals.Missed {
		of(name).Missed = n
	}
	for name, e := range byName {
		if entity == "" || strings.EqualFold(name, entity) {
			f.Entities = append(f.Entities, *e)
		}
	}
	slices.SortFunc(f.Entities, func(a, b FleetEntity) int { return strings.Compare(a.Entity, b.Entity) })
	return f
}
