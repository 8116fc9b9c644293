// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"math"
	"time"
)

// MaxTTL is the longest time to live that a header holds: 2³²−1 milliseconds, about 49.7 days. A
// header that has it is saturated: it stands for that or for more.
const MaxTTL = math.MaxUint32 * time.Millisecond

// LongestLife is the longest life that is distinguished from one without end, about 100 years. That
// is far below what a time.Duration holds, so it can be added to an instant of our times.
const LongestLife = 100 * 365 * 24 * time.Hour

// Life returns the time to live that the sender states: 0 if it states none, or one beyond
// [LongestLife]. The header's ttl counts. If that is saturated, the difference of
// absolute-expiry-time and creation-time counts, which is independent of clocks. Clients state a
// life beyond the header in that way (.NET: AmqpMessageConverter caps ttl at uint.MaxValue and sets
// both properties). A difference below the saturated ttl, even a negative one, is ignored, and so
// are both properties without a ttl (service-bus-amqp-protocol-guide: ignored on input).
func (m *Message) Life() (time.Duration, error) {
	ttl, ok := ListField(m.Header, HeaderTTL)
	if !ok {
		return 0, nil
	}
	if header := ttl.Uint(); ttl.Err() != nil || header < math.MaxUint32 {
		return time.Duration(header) * time.Millisecond, ttl.Err()
	}
	creation, made := ListField(m.Properties, PropertyCreationTime)
	if !made {
		return MaxTTL, nil
	}
	return m.lifeFrom(creation.Timestamp(), creation.Err()), nil
}

// LifeSince is Life for a message that a broker has enqueued at the given instant. If the header is
// saturated and there is an absolute-expiry-time without a creation-time, the life counts from the
// enqueue time, as in the broker. With 49.7 days instead, the message would seem to have expired
// too early.
func (m *Message) LifeSince(enqueued time.Time) (time.Duration, error) {
	life, err := m.Life()
	if err != nil || life != MaxTTL || enqueued.IsZero() {
		return life, err
	}
	if _, made := ListField(m.Properties, PropertyCreationTime); !made {
		life = m.lifeFrom(TimestampOf(enqueued), nil)
	}
	return life, err
}

// lifeFrom is the life up to absolute-expiry-time, or MaxTTL if that is no shorter.
func (m *Message) lifeFrom(creation Timestamp, unreadable error) time.Duration {
	expiry, ok := ListField(m.Properties, PropertyAbsoluteExpiryTime)
	if !ok || unreadable != nil {
		return MaxTTL
	}
	end := expiry.Timestamp()
	if expiry.Err() != nil || end <= creation {
		return MaxTTL
	}
	// The difference of two ordered int64 fits into a uint64.
	switch ms := uint64(end) - uint64(creation); {
	case ms <= math.MaxUint32:
		return MaxTTL
	case ms > uint64(LongestLife/time.Millisecond):
		return 0
	default:
		return time.Duration(ms) * time.Millisecond
	}
}

// StateLife states a life of whole milliseconds on a message that is sent at the instant now. It
// states it in the header, and also in the properties if the header cannot hold it. Life reads it.
// 0 removes it from the header only.
func StateLife(h *Header, p *Properties, life time.Duration, now time.Time) {
	h.TTL, h.HasTTL = uint32(min(life, MaxTTL)/time.Millisecond), life > 0
	if life < MaxTTL {
		return
	}
	p.CreationTime, p.HasCreationTime = TimestampOf(now), true
	p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime = TimestampOf(now)+Timestamp(life.Milliseconds()), true
}
