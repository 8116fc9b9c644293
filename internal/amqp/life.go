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

// Life is how long the message lives by what its sender states, 0 when it states nothing, or a life
// beyond [LongestLife]. The header's ttl counts. Where there is none, or a saturated one, it is the
// difference of absolute-expiry-time and creation-time, which does not depend on whose clock is
// right: so clients state a life that no header holds (.NET: AmqpMessageConverter caps ttl at
// uint.MaxValue and sets both properties). A difference below the saturated ttl says nothing more
// than it does, be it negative.
func (m *Message) Life() (time.Duration, error) {
	ttl, ok := ListField(m.Header, HeaderTTL)
	header := uint32(0)
	if ok {
		if header = ttl.Uint(); ttl.Err() != nil || header < math.MaxUint32 {
			return time.Duration(header) * time.Millisecond, ttl.Err()
		}
	}
	creation, made := ListField(m.Properties, PropertyCreationTime)
	if !made {
		return ofHeader(header), nil
	}
	return m.lifeFrom(creation.Timestamp(), creation.Err(), header), nil
}

// LifeSince is Life of a message that a broker shows, which was enqueued at the given instant. A
// saturated header whose absolute-expiry-time stands alone reckons from there, as the broker does:
// taken for the 49.7 days, the message would seem to be over when it is not.
func (m *Message) LifeSince(enqueued time.Time) (time.Duration, error) {
	life, err := m.Life()
	if _, made := ListField(m.Properties, PropertyCreationTime); err == nil && life == MaxTTL && !made && !enqueued.IsZero() {
		life = m.lifeFrom(TimestampOf(enqueued), nil, math.MaxUint32)
	}
	return life, err
}

// lifeFrom is the life that ends with absolute-expiry-time, or that of the header where it does not
// tell more.
func (m *Message) lifeFrom(creation Timestamp, unreadable error, header uint32) time.Duration {
	expiry, ok := ListField(m.Properties, PropertyAbsoluteExpiryTime)
	if !ok || unreadable != nil {
		return ofHeader(header)
	}
	end := expiry.Timestamp()
	if expiry.Err() != nil || end <= creation {
		return ofHeader(header)
	}
	// Of two numbers of 64 bits in order the difference fits into one without a sign.
	switch ms := uint64(end) - uint64(creation); {
	case ms <= uint64(header):
		return ofHeader(header)
	case ms > uint64(LongestLife/time.Millisecond):
		return 0
	default:
		return time.Duration(ms) * time.Millisecond
	}
}

func ofHeader(ttl uint32) time.Duration { return time.Duration(ttl) * time.Millisecond }

// StateLife puts a life of whole milliseconds on a message that is to be sent at the instant now:
// into the header, and what is more than a header holds into the properties as well. Life reads it.
// 0 takes it off the header alone.
func StateLife(h *Header, p *Properties, life time.Duration, now time.Time) {
	h.TTL, h.HasTTL = uint32(min(life, MaxTTL)/time.Millisecond), life > 0
	if life < MaxTTL {
		return
	}
	p.CreationTime, p.HasCreationTime = TimestampOf(now), true
	p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime = TimestampOf(now)+Timestamp(life.Milliseconds()), true
}
