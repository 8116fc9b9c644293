// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"time"

	"overdue/internal/config"
	"overdue/monitor/adopt"
)

// warningsOf are those of an entity, nil when there are none.
func warningsOf(e *config.Entity) []time.Duration {
	if len(e.WarnBefore) == 0 {
		return nil
	}
	return e.WarnBefore
}

// Adoptions are the queues and topics whose messages are watched although they did not pass an
// endpoint.
func Adoptions(c *config.Config) (all []adopt.Entity) {
	for i := range c.Monitor.Entities {
		if e := &c.Monitor.Entities[i]; e.Adopt {
			all = append(all, adopt.Entity{Entity: e.Name(), Every: e.AdoptEvery})
		}
	}
	return all
}
