// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"overdue/internal/servicebus/address"
)

// A NamespaceSetup is the entities that a namespace has from the start.
type NamespaceSetup struct {
	Name   string
	Queues []QueueConfig
	Topics []TopicSetup
}

// setups are the entities of the configuration.
type setups struct {
	defaultName string                    // see Config.DefaultName
	byKey       map[string]NamespaceSetup // by key(name); "" is the default namespace
}

func setupsOf(c *Config) *setups {
	s := &setups{c.DefaultName, map[string]NamespaceSetup{"": {Queues: c.Queues, Topics: c.Topics}}}
	for _, n := range c.Namespaces {
		s.byKey[key(n.Name)] = n
	}
	return s
}

// has reports whether the configuration has a namespace of that name.
func (s *setups) has(name string) bool {
	_, ok := s.byKey[key(name)]
	return ok
}

// of returns the entities of a namespace. One that a client has named into being has those of the
// default namespace.
func (s *setups) of(name string) NamespaceSetup {
	if !s.has(name) {
		name = ""
	}
	return s.byKey[key(name)]
}

// without returns what is not the same in another setup.
func (s NamespaceSetup) without(other NamespaceSetup) NamespaceSetup {
	same := map[string]any{}
	for _, q := range other.Queues {
		same[key(q.Name)] = q
	}
	for _, t := range other.Topics {
		same[key(t.Name)] = t
	}
	s.Queues = slices.DeleteFunc(slices.Clone(s.Queues), func(q QueueConfig) bool { return reflect.DeepEqual(same[key(q.Name)], q) })
	s.Topics = slices.DeleteFunc(slices.Clone(s.Topics), func(t TopicSetup) bool { return reflect.DeepEqual(same[key(t.Name)], t) })
	return s
}

// paths returns those of all its entities.
func (s NamespaceSetup) paths() (all []string) {
	for _, q := range s.Queues {
		all = append(all, q.Name)
	}
	for _, t := range s.Topics {
		all = append(all, t.Name)
		for _, sub := range t.Subscriptions {
			all = append(all, address.SubscriptionPath(t.Name, sub.Name))
		}
	}
	return all
}

// makeNamespaces makes the namespaces of the configuration that are missing, without entities.
func (b *Broker) makeNamespaces() (made []*Namespace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, setup := range b.setups.Load().byKey {
		if b.spaces[key(setup.Name)] == nil {
			n := newNamespace(b, setup.Name)
			b.spaces[key(setup.Name)] = n
			made = append(made, n)
		}
	}
	return made
}

// Reconfigure makes the entities that are new in a configuration, of which nothing else counts. All
// that is there stays as it is. The results are a sentence for each entity: what was made, and what
// is not as the configuration has it now. Errors: those of New, queue.ErrNoRoom, queue.ErrNotStored.
func (b *Broker) Reconfigure(cfg Config) (made, differences []string, err error) {
	if err := tryConfiguration(cfg); err != nil {
		return nil, nil, err
	}
	before, after := b.setups.Load(), setupsOf(&cfg)
	for k, setup := range before.byKey {
		if _, there := after.byKey[k]; !there { // clients go on using it
			after.byKey[k] = setup
			differences = append(differences, "namespace "+setup.Name+" is not in the configuration any more")
		}
	}
	b.setups.Store(after)
	isNew := b.makeNamespaces()
	var errs []error
	for _, n := range b.Namespaces() {
		was := before.of(n.name)
		if slices.Contains(isNew, n) {
			was = NamespaceSetup{}
		}
		m, d, err := n.entities.adopt(was, after.of(n.name))
		made, differences, errs = append(made, m...), append(differences, d...), append(errs, err)
	}
	return made, differences, errors.Join(errs...)
}

// adopt makes what is new in a setup, and compares what differs from the one before with what is
// there.
func (es *entities) adopt(before, after NamespaceSetup) (made, differences []string, err error) {
	err = es.ns.b.disk.durably(func() error {
		es.mu.Lock()
		defer es.mu.Unlock()
		there := maps.Clone(es.byKey)
		es.loaded = make(map[*Entity]bool, len(there))
		for _, e := range there {
			es.loaded[e] = true
		}
		err := es.setUpLocked(after.without(before))
		es.loaded = nil
		var isNew []*Entity
		for k, e := range es.byKey {
			if there[k] == nil {
				isNew = append(isNew, e)
				made = append(made, es.sentence("%s %s is new", e.kind, e.path))
			}
		}
		for _, e := range isNew { // a target may stand behind what forwards to it
			e.setMoversLocked()
		}
		es.noteGoneLocked(before.paths(), after.paths())
		differences, es.differences = es.differences, nil
		return err
	})
	slices.Sort(made)
	return made, differences, err
}

// noteGoneLocked notes the entities that are there and that the configuration has no more.
func (es *entities) noteGoneLocked(before, after []string) {
	kept := map[string]bool{}
	for _, path := range after {
		kept[key(path)] = true
	}
	for _, path := range before {
		if e := es.byKey[key(path)]; e != nil && !kept[key(path)] {
			es.differLocked("%s %s is not in the configuration any more", e.kind, e.path)
		}
	}
}
