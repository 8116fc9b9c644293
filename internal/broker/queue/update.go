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
	q.cfg.change(cfg)
	if cfg.Shared == nil && q.cfg.Shared == nil {
		q.quota.SetLimit(cfg.MaxSize)
	}
	if q.dead != nil {
		q.dead.mu.Lock()
		q.dead.cfg.change(cfg)
		q.dead.mu.Unlock()
	}
	return nil
}

// change takes over what may change.
func (s *settings) change(cfg Config) {
	s.LockDuration = cfg.LockDuration
	s.MaxDeliveryCount = cfg.MaxDeliveryCount
	s.DeadLetteringOnMessageExpiration = cfg.DeadLetteringOnMessageExpiration
	s.DuplicateDetectionHistoryTimeWindow = cfg.DuplicateDetectionHistoryTimeWindow
	s.MaxSize = cfg.MaxSize
	if !s.frozen {
		s.DefaultMessageTimeToLive = cfg.DefaultMessageTimeToLive
	}
}
