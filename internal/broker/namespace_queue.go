// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"time"

	"overdue/internal/broker/queue"
)

// QueueInfo is a queue as it stands.
type QueueInfo struct {
	Config                           QueueConfig // defaults filled in
	CreatedAt, UpdatedAt, AccessedAt time.Time   // broker's clock; AccessedAt is zero for a queue that was never used
	Counts                           queue.Counts
}

// CreateQueue makes a queue. Errors: ErrEntityExists, ErrInvalidConfig,
// ErrTooManyEntities, ErrClosed.
func (n *Namespace) CreateQueue(cfg QueueConfig) (QueueInfo, error) {
	e, err := n.entities.createNamed(func() (*Entity, error) { return n.entities.createQueueLocked(cfg) })
	return infoOf(e, err, (*Entity).queueInfo)
}

func (es *entities) createQueueLocked(cfg QueueConfig) (*Entity, error) {
	if err := cfg.checkNew(); err != nil {
		return nil, err
	}
	return es.addLocked(KindQueue, cfg.Name, nil, settings{queue: cfg.withDefaults()}, nil)
}

// setUpQueueLocked makes a queue of the configuration, unless it is there.
func (es *entities) setUpQueueLocked(cfg QueueConfig) error {
	if e := es.loadedLocked(cfg.Name); e != nil {
		es.compareLocked(e, KindQueue, &settings{queue: cfg.withDefaults()}, nil)
		return nil
	}
	_, err := es.createQueueLocked(cfg)
	return err
}

// UpdateQueue changes how a queue is set up. If anything is different then, its
// links are detached. Errors: ErrEntityNotFound; ErrInvalidConfig, also for what
// cannot be changed.
func (n *Namespace) UpdateQueue(cfg QueueConfig) (QueueInfo, error) {
	if err := cfg.check(); err != nil {
		return QueueInfo{}, err
	}
	e, err := n.entities.update(KindQueue, cfg.Name, func(s *settings) error {
		was := s.queue
		cfg.Name = was.Name
		s.queue = cfg.withDefaults()
		return unchanged("queue", cfg.Name, was.RequiresSession == cfg.RequiresSession,
			was.RequiresDuplicateDetection == cfg.RequiresDuplicateDetection, was.EnablePartitioning == cfg.EnablePartitioning)
	})
	return infoOf(e, err, (*Entity).queueInfo)
}

// unchanged is an error where one of the properties that are made for life is
// to change.
func unchanged(what, name string, sessions, duplicates, partitions bool) error {
	for _, p := range []struct {
		same bool
		name string
	}{
		{sessions, "RequiresSession"}, {duplicates, "RequiresDuplicateDetection"}, {partitions, "EnablePartitioning"},
	} {
		if !p.same {
			return fmt.Errorf("%w: %s %.300q: %s cannot be changed", ErrInvalidConfig, what, name, p.name)
		}
	}
	return nil
}

// QueueInfo returns the queue of that name. Errors: ErrEntityNotFound.
func (n *Namespace) QueueInfo(name string) (QueueInfo, error) {
	e, err := n.entities.findKind(KindQueue, name)
	return infoOf(e, err, (*Entity).queueInfo)
}

// Queues returns all queues, sorted by name.
func (n *Namespace) Queues() []QueueInfo {
	return infosOf(n.entities.all(KindQueue), (*Entity).queueInfo)
}

// DeleteQueue deletes a queue with its messages. Errors: ErrEntityNotFound.
func (n *Namespace) DeleteQueue(name string) error { return n.entities.delete(KindQueue, name) }

func (e *Entity) queueInfo() QueueInfo {
	info := QueueInfo{Config: e.settings.Load().queue, Counts: e.queue.Counts()}
	info.CreatedAt, info.UpdatedAt, info.AccessedAt = e.times()
	return info
}

// infoOf returns what info says of e, unless there is an error.
func infoOf[T any](e *Entity, err error, info func(*Entity) T) (v T, _ error) {
	if err != nil {
		return v, err
	}
	return info(e), nil
}

func infosOf[T any](es []*Entity, info func(*Entity) T) []T {
	infos := make([]T, len(es))
	for i, e := range es {
		infos[i] = info(e)
	}
	return infos
}
