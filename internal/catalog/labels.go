// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/entities"
)

// Labels are those that the configuration in force states of a queue or topic.
func (k *Catalog) Labels(name string) map[string]string {
	if e, _ := k.current.Load().Entity(name); e != nil {
		return e.Labels
	}
	return nil
}

// AllLabels are the labels of the listed queues and topics, and of the subscriptions of the topics,
// by path.
func (k *Catalog) AllLabels() map[string]map[string]string {
	all := map[string]map[string]string{}
	w := k.current.Load()
	for i := range w.cfg.Monitor.Entities {
		e := &w.cfg.Monitor.Entities[i]
		if len(e.Labels) == 0 {
			continue
		}
		all[e.Name()] = e.Labels
		for _, name := range subscriptions(&w.assumed[i]) {
			all[address.SubscriptionPath(e.Name(), name)] = e.Labels
		}
		known, _ := k.subscriptions.Load(strings.ToLower(e.Name()))
		names, _ := known.([]string)
		for _, name := range names {
			all[address.SubscriptionPath(e.Name(), name)] = e.Labels
		}
	}
	return all
}

func subscriptions(info *entities.Info) (names []string) {
	for _, s := range info.Subscriptions {
		names = append(names, s.Name)
	}
	return names
}
