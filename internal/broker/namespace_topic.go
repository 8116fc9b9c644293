// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"time"

	"overdue/internal/broker/queue"
)

// TopicInfo is a topic as it stands.
type TopicInfo struct {
	Config                           TopicConfig // defaults filled in
	CreatedAt, UpdatedAt, AccessedAt time.Time   // as in QueueInfo
	Counts                           queue.Counts
	Subscriptions                    int
	SQLFilters, CorrelationFilters   int // rules of all its subscriptions that have such a filter
}

// CreateTopic makes a topic without subscriptions. Errors: as CreateQueue.
func (n *Namespace) CreateTopic(cfg TopicConfig) (TopicInfo, error) {
	e, err := n.entities.createNamed(func() (*Entity, error) { return n.entities.createTopicLocked(cfg) })
	return infoOf(e, err, (*Entity).topicInfo)
}

func (es *entities) createTopicLocked(cfg TopicConfig) (*Entity, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return es.addLocked(KindTopic, cfg.Name, nil, settings{topic: cfg.withDefaults()}, nil)
}

// setUpTopicLocked makes a topic of the configuration with all that hangs on it, unless it
// is there.
func (es *entities) setUpTopicLocked(t TopicSetup) error {
	if e := es.loadedLocked(t.Name); e != nil {
		es.compareLocked(e, KindTopic, &settings{topic: t.withDefaults()}, nil)
		if e.kind != KindTopic {
			return nil
		}
	} else if _, err := es.createTopicLocked(t.TopicConfig); err != nil {
		return err
	}
	var errs []error
	for _, s := range t.Subscriptions {
		if err := es.setUpSubscriptionLocked(t.Name, s); err != nil {
			errs = append(errs, fmt.Errorf("topic %q, subscription %q: %w", t.Name, s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// UpdateTopic changes how a topic is set up, and detaches its links. Errors: as
// UpdateQueue.
func (n *Namespace) UpdateTopic(cfg TopicConfig) (TopicInfo, error) {
	if err := cfg.check(); err != nil {
		return TopicInfo{}, err
	}
	e, err := n.entities.update(KindTopic, cfg.Name, func(s *settings) error {
		was := s.topic
		cfg.Name = was.Name
		s.topic = cfg.withDefaults()
		return unchanged("topic", cfg.Name, true,
			was.RequiresDuplicateDetection == cfg.RequiresDuplicateDetection, was.EnablePartitioning == cfg.EnablePartitioning)
	})
	return infoOf(e, err, (*Entity).topicInfo)
}

// TopicInfo returns the topic of that name. Errors: ErrEntityNotFound.
func (n *Namespace) TopicInfo(name string) (TopicInfo, error) {
	e, err := n.entities.findKind(KindTopic, name)
	return infoOf(e, err, (*Entity).topicInfo)
}

// Topics returns all topics, sorted by name.
func (n *Namespace) Topics() []TopicInfo {
	return infosOf(n.entities.all(KindTopic), (*Entity).topicInfo)
}

// DeleteTopic deletes a topic with its subscriptions. Errors: ErrEntityNotFound.
func (n *Namespace) DeleteTopic(name string) error { return n.entities.delete(KindTopic, name) }

func (e *Entity) topicInfo() TopicInfo {
	subs := e.subscriptions()
	info := TopicInfo{Config: e.settings.Load().topic, Counts: e.queue.Counts(), Subscriptions: len(subs)}
	info.CreatedAt, info.UpdatedAt, info.AccessedAt = e.times()
	for _, s := range subs {
		info.Counts.Size += s.queue.Counts().Size
		for _, r := range s.rules.now() {
			if r.cfg.Filter.Correlation != nil {
				info.CorrelationFilters++
			} else { // true and false are expressions to the service, 1=1 and 1=0
				info.SQLFilters++
			}
		}
	}
	return info
}

// subscriptions of a topic, sorted by path. Read-only.
func (e *Entity) subscriptions() []*Entity {
	if subs := e.subs.Load(); subs != nil {
		return *subs
	}
	return nil
}
