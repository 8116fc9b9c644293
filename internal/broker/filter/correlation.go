// SPDX-License-Identifier: Apache-2.0

package filter

// A Correlation is a condition: all that it names has to be equal. Strings are
// compared with case. Numbers are equal when they are, whatever their width: the
// service is not clear about that, and clients cannot choose the width everywhere.
// A number never equals a string.
type Correlation struct {
	Sys  []SysEqual
	User []UserEqual
}

// A SysEqual is what a system property has to be.
type SysEqual struct {
	Property SysProperty
	Value    Value
}

// A UserEqual is what an application property has to be.
type UserEqual struct {
	Name  string
	Value Value
}

// Match reports whether m has all of it.
func (c *Correlation) Match(m Message) (bool, error) {
	for i := range c.Sys {
		if !Equal(m.Sys(c.Sys[i].Property), c.Sys[i].Value) {
			return false, nil
		}
	}
	for i := range c.User {
		if !Equal(m.User(c.User[i].Name), c.User[i].Value) {
			return false, nil
		}
	}
	return true, nil
}
