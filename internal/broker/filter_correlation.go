// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/broker/filter"
	"overdue/internal/broker/message"
)

// A correlation is a CorrelationFilter made ready for use: all that it names has
// to be equal. Strings are compared with case. Numbers are equal when they are,
// whatever their width: the service is not clear about that, and clients cannot
// choose the width everywhere. A number never equals a string.
type correlation struct {
	sys []struct {
		property filter.SysProperty
		want     filter.Value
	}
	user []struct {
		name string
		want filter.Value
	}
}

func newCorrelation(f *CorrelationFilter) *correlation {
	c := &correlation{}
	for _, field := range []struct {
		property filter.SysProperty
		want     *string
	}{
		{filter.CorrelationID, f.CorrelationID}, {filter.MessageID, f.MessageID}, {filter.To, f.To},
		{filter.ReplyTo, f.ReplyTo}, {filter.Label, f.Label}, {filter.SessionID, f.SessionID},
		{filter.ReplyToSessionID, f.ReplyToSessionID}, {filter.ContentType, f.ContentType},
	} {
		if field.want != nil {
			c.sys = append(c.sys, struct {
				property filter.SysProperty
				want     filter.Value
			}{field.property, filter.StringValue(*field.want)})
		}
	}
	for name, want := range f.Properties {
		c.user = append(c.user, struct {
			name string
			want filter.Value
		}{name, message.FilterValue(want)})
	}
	return c
}

// Match implements condition.
func (c *correlation) Match(m filter.Message) (bool, error) {
	for i := range c.sys {
		if !filter.Equal(m.Sys(c.sys[i].property), c.sys[i].want) {
			return false, nil
		}
	}
	for i := range c.user {
		if !filter.Equal(m.User(c.user[i].name), c.user[i].want) {
			return false, nil
		}
	}
	return true, nil
}
