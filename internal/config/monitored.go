// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// MonitoredNames are the monitored queues and topics that the configuration names: those of
// monitor.entities or, where there are none, those of the embedded broker.
func (c *Config) MonitoredNames() (names []string) {
	for i := range c.Monitor.Entities {
		names = append(names, c.Monitor.Entities[i].Name())
	}
	if len(names) > 0 || !c.Embedded() {
		return names
	}
	for _, q := range c.Broker.Queues {
		names = append(names, q.Name)
	}
	for _, t := range c.Broker.Topics {
		names = append(names, t.Name)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.EqualFold(name, c.MonitorQueue) })
}
