// SPDX-License-Identifier: Apache-2.0

package amqp_test

import (
	"math"
	"testing"
	"time"

	"overdue/internal/amqp"
)

const days = 24 * time.Hour

// stating is a message with a time to live in its header, in milliseconds and -1 for none, and with
// the two properties, where they are not nil.
func stating(ttl int64, made, ends *amqp.Timestamp) *amqp.Message {
	m := &amqp.Message{}
	if ttl >= 0 {
		m.Header = amqp.Header{TTL: uint32(ttl), HasTTL: true}.Raw()
	}
	var p amqp.Properties
	if made != nil {
		p.CreationTime, p.HasCreationTime = *made, true
	}
	if ends != nil {
		p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime = *ends, true
	}
	m.Properties = p.Raw()
	return m
}

func TestASaturatedTimeToLiveYieldsToTheLifeOfTheProperties(t *testing.T) {
	const saturated = math.MaxUint32
	at := func(d time.Duration) *amqp.Timestamp {
		return new(amqp.Timestamp(1_800_000_000_000 + d.Milliseconds()))
	}
	lowest, highest := new(amqp.Timestamp(math.MinInt64)), new(amqp.Timestamp(math.MaxInt64))
	for name, tc := range map[string]struct {
		m    *amqp.Message
		want time.Duration
	}{
		"nothing":                               {&amqp.Message{}, 0},
		"header":                                {stating(1500, nil, nil), 1500 * time.Millisecond},
		"header of nothing":                     {stating(0, at(0), at(days)), 0},
		"header, and properties":                {stating(1500, at(0), at(days)), 1500 * time.Millisecond},
		"one less than saturated":               {stating(saturated-1, at(0), at(100*days)), amqp.MaxTTL - time.Millisecond},
		"saturated":                             {stating(saturated, nil, nil), amqp.MaxTTL},
		"saturated, longer life":                {stating(saturated, at(0), at(100*days)), 100 * days},
		"saturated, the same life":              {stating(saturated, at(0), at(amqp.MaxTTL)), amqp.MaxTTL},
		"saturated, shorter life":               {stating(saturated, at(0), at(time.Hour)), amqp.MaxTTL},
		"saturated, ends before it was made":    {stating(saturated, at(100*days), at(0)), amqp.MaxTTL},
		"saturated, made alone":                 {stating(saturated, at(0), nil), amqp.MaxTTL},
		"saturated, end alone":                  {stating(saturated, nil, at(100*days)), amqp.MaxTTL},
		"saturated, ends beyond all that it is": {stating(saturated, at(0), highest), 0},
		"saturated, more than 64 bits":          {stating(saturated, lowest, highest), 0},
		"saturated, less than 64 bits":          {stating(saturated, highest, lowest), amqp.MaxTTL},
		"saturated, a hundred years":            {stating(saturated, at(0), at(amqp.LongestLife)), amqp.LongestLife},
		"saturated, more than that":             {stating(saturated, at(0), at(amqp.LongestLife+time.Millisecond)), 0},
		"no header":                             {stating(-1, at(0), at(time.Hour)), 0},
		"no header, longer life":                {stating(-1, at(0), at(100*days)), 0},
		"no header, end alone":                  {stating(-1, nil, at(time.Hour)), 0},
	} {
		if got, err := tc.m.Life(); err != nil || got != tc.want {
			t.Errorf("%s: Life = %v, %v, want %v", name, got, err, tc.want)
		}
	}
	enqueued := at(0).Time()
	for name, tc := range map[string]struct {
		m    *amqp.Message
		want time.Duration
	}{
		"saturated, end alone":  {stating(saturated, nil, at(100*days)), 100 * days},
		"saturated, both":       {stating(saturated, at(-days), at(100*days)), 101 * days},
		"saturated":             {stating(saturated, nil, nil), amqp.MaxTTL},
		"header, and its end":   {stating(1500, nil, at(100*days)), 1500 * time.Millisecond},
		"no header, end alone":  {stating(-1, nil, at(100*days)), 0},
		"saturated, ended long": {stating(saturated, nil, at(-days)), amqp.MaxTTL},
	} {
		if got, err := tc.m.LifeSince(enqueued); err != nil || got != tc.want {
			t.Errorf("%s: LifeSince = %v, %v, want %v", name, got, err, tc.want)
		}
	}
}

func TestALifeThatIsStatedIsRead(t *testing.T) {
	now := time.Date(2033, 11, 6, 8, 49, 37, 123456789, time.UTC)
	for _, life := range []time.Duration{0, time.Millisecond, time.Hour, amqp.MaxTTL - time.Millisecond, amqp.MaxTTL, amqp.MaxTTL + time.Millisecond, 100 * days, amqp.LongestLife} {
		var h amqp.Header
		var p amqp.Properties
		amqp.StateLife(&h, &p, life, now)
		m := amqp.Message{Header: h.Raw(), Properties: p.Raw()}
		if got, err := m.Life(); err != nil || got != life {
			t.Errorf("Life = %v, %v, want %v", got, err, life)
		}
		if p.HasCreationTime != (life >= amqp.MaxTTL) {
			t.Errorf("%v: properties state it: %v, want only what no header holds", life, p.HasCreationTime)
		}
	}
}
