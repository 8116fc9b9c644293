// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

// KeysOf admits clients that know one of the keys, for Config.Admit: by SASL PLAIN, with the name
// and the key, or by a shared access signature. Every error is a *sas.Refusal, whose text is the
// service's. The keys may change: it calls current for each password and token. Earlier grants last
// as long as their token, or their connection.
func KeysOf(current func() sas.Keys) func(Credentials) (sas.Grant, error) {
	return func(c Credentials) (sas.Grant, error) {
		known := current()
		if c.Audience == "" {
			return known.Password(c.Username, c.Password)
		}
		if c.Token == "" {
			return sas.Grant{}, sas.ErrMalformedToken
		}
		path, err := address.Audience(c.Audience)
		if err != nil {
			return sas.Grant{}, sas.ErrInvalidAudience
		}
		return known.Token(c.Token, path, time.Now())
	}
}
