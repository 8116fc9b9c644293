// SPDX-License-Identifier: Apache-2.0

package queue

// Update changes the settings that a queue can change in its life: LockDuration, MaxDeliveryCount,
// DefaultMessageTimeToLive, DeadLetteringOnMessageExpiration, MaxSize unless the quota is shared,
// and DuplicateDetectionHistoryTimeWindow. The rest of cfg is not looked at. Messages keep the
// values that they have already: a lock its end, a message its time to live. Errors: ErrClosed.
func (q *Queue) Update(cfg Config) error {
	cfg = cfg.withDefaults()
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.leave(now)
	q.change(cfg)
	if cfg.Shared == nil && q.cfg.Shared == nil {
		q.quota.SetLimit(cfg.MaxSize)
	}
	if q.dead != nil {
		q.dead.mu.Lock()
		q.dead.change(cfg)
		q.dead.mu.Unlock()
	}
	return nil
}

// change takes over what may change.
func (q *Queue) change(cfg Config) {
	q.cfg.LockDuration = cfg.LockDuration
	q.cfg.MaxDeliveryCount = cfg.MaxDeliveryCount
	q.cfg.DeadLetteringOnMessageExpiration = cfg.DeadLetteringOnMessageExpiration
	q.cfg.DuplicateDetectionHistoryTimeWindow = cfg.DuplicateDetectionHistoryTimeWindow
	q.cfg.MaxSize = cfg.MaxSize
	if !q.cfg.frozen {
		q.cfg.DefaultMessageTimeToLive = cfg.DefaultMessageTimeToLive
	}
}
