// SPDX-License-Identifier: Apache-2.0

package broker

import "overdue/internal/sqlfilter"

// A correlation is a CorrelationFilter made ready for use: all that it names has
// to be equal. Strings are compared with case. Numbers are equal when they are,
// whatever their width: the service is not clear about that, and clients cannot
// choose the width everywhere. A number never equals a string.
type correlation struct {
	sys []struct {
		property sqlfilter.SysProperty
		want     sqlfilter.Value
	}
	user []struct {
		name string
		want sqlfilter.Value
	}
}

func newCorrelation(f *CorrelationFilter) *correlation {
	c := &correlation{}
	for _, field := range []struct {
		property sqlfilter.SysProperty
		want     *string
	}{
		{sqlfilter.CorrelationID, f.CorrelationID}, {sqlfilter.MessageID, f.MessageID}, {sqlfilter.To, f.To},
		{sqlfilter.ReplyTo, f.ReplyTo}, {sqlfilter.Label, f.Label}, {sqlfilter.SessionID, f.SessionID},
		{sqlfilter.ReplyToSessionID, f.ReplyToSessionID}, {sqlfilter.ContentType, f.ContentType},
	} {
		if field.want != nil {
			c.sys = append(c.sys, struct {
				property sqlfilter.SysProperty
				want     sqlfilter.Value
			}{field.property, sqlfilter.StringValue(*field.want)})
		}
	}
	for name, want := range f.Properties {
		c.user = append(c.user, struct {
			name string
			want sqlfilter.Value
		}{name, filterValue(want)})
	}
	return c
}

// Match implements condition.
func (c *correlation) Match(m sqlfilter.Message) (bool, error) {
	for i := range c.sys {
		if !sqlfilter.Equal(m.Sys(c.sys[i].property), c.sys[i].want) {
			return false, nil
		}
	}
	for i := range c.user {
		if !sqlfilter.Equal(m.User(c.user[i].name), c.user[i].want) {
			return false, nil
		}
	}
	return true, nil
}
