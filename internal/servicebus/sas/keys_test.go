// SPDX-License-Identifier: Apache-2.0

package sas

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeysJudgeWhatSomebodyShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := Keys{
			{Name: "app", Value: "first", Rights: All}, {Name: "APP", Value: "second", Rights: Send},
			{Name: "empty", Value: "", Rights: All}, {Name: "one", Value: "third", Rights: Listen, Entity: "/orders/eu"},
		}
		now := time.Now()
		soon := now.Add(time.Hour)
		for _, c := range []struct {
			name, token, path string
			want              error
			rights            Rights
		}{
			{"a token", Make("app", "first", "amqp://h/orders", soon), "orders", nil, All},
			{"a token of the namespace", Make("app", "second", "sb://localhost/", soon), "orders", nil, Send},
			{"a token of the entity for its node", Make("app", "first", "amqp://h/orders", soon), "orders/$management", nil, All},
			{"a token of another entity", Make("app", "first", "amqp://h/order", soon), "orders", ErrInvalidAudience, 0},
			{"another signature", Make("app", "third", "amqp://h/orders", soon), "orders", ErrInvalidSignature, 0},
			{"another name", Make("root", "first", "amqp://h/orders", soon), "orders", ErrInvalidSignature, 0},
			{"an empty key's signature", Make("empty", "", "amqp://h/orders", soon), "orders", ErrInvalidSignature, 0},
			{"a key of one entity", Make("one", "third", "amqp://h/orders/eu", soon), "Orders/EU/$management", nil, Listen},
			{"a key of one entity for another", Make("one", "third", "amqp://h/orders", soon), "orders", ErrInvalidSignature, 0},
			{"a key of one entity for the namespace", Make("one", "third", "amqp://h/", soon), "", ErrInvalidSignature, 0},
			{"a key of one entity, signed for the namespace", Make("one", "third", "amqp://h/", soon), "orders/eu", nil, Listen},
			{"a key of one entity, for a way out of it", Make("one", "third", "amqp://h/orders/eu", soon), "orders/eu/../../bills", ErrInvalidAudience, 0},
			{"a key of everything, for the same", Make("app", "first", "amqp://h/", soon), "orders/eu/../../bills", ErrInvalidAudience, 0},
			{"no signature", "SharedAccessSignature sr=x", "orders", ErrMalformedToken, 0},
			{"nothing", "", "orders", ErrMissingToken, 0},
			{"a JSON Web Token", "Bearer eyJ0eXAi.x.y", "orders", ErrNotSAS, 0},
		} {
			g, err := keys.Token(c.token, c.path, now)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || g.Rights != c.rights {
				t.Errorf("%s: %v, %v; want %v, %v", c.name, g.Rights, err, c.rights, c.want)
			}
			if err == nil && !g.Expires.Equal(soon) {
				t.Errorf("%s holds until %v, want %v", c.name, g.Expires, soon)
			}
		}
		_, err := keys.Token(Make("app", "first", "amqp://h/orders", now.Add(-time.Second)), "orders", now)
		if err == nil || !strings.HasPrefix(err.Error(), "ExpiredToken: The token is expired. Expiration time: '1999-12-31 23:59:59Z'.") {
			t.Errorf("an expired token: %v, want ExpiredToken with the time", err)
		}
	})
}

func TestKeysJudgeNamesAndPasswords(t *testing.T) {
	keys := Keys{
		{Name: "app", Value: "first", Rights: All}, {Name: "APP", Value: "second", Rights: Send},
		{Name: "empty", Value: "", Rights: All}, {Name: "one", Value: "third", Rights: Listen, Entity: "orders"},
	}
	for _, c := range []struct {
		name, key string
		want      Grant
		err       error
	}{
		{"app", "first", Grant{Rights: All}, nil},
		{"App", "second", Grant{Rights: Send}, nil},
		{"one", "third", Grant{Path: "orders", Rights: Listen}, nil},
		{"app", "third", Grant{}, ErrInvalidKey},
		{"root", "first", Grant{}, ErrInvalidKey},
		{"empty", "", Grant{}, ErrInvalidKey},
		{"", "", Grant{}, ErrInvalidKey},
	} {
		if got, err := keys.Password(c.name, c.key); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("Password(%q, %q) = %+v, %v; want %+v, %v", c.name, c.key, got, err, c.want, c.err)
		}
	}
}

func TestAGrantHoldsForItsRightsUntilItExpires(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		grant Grant
		oneOf Rights
		want  bool
	}{
		{"its right", Grant{Rights: Send}, Send, true},
		{"one of several", Grant{Rights: Listen}, Listen | Manage, true},
		{"another right", Grant{Rights: Send}, Listen, false},
		{"nothing", Grant{}, All, false},
		{"in time", Grant{Rights: Send, Expires: now.Add(1)}, Send, true},
		{"expired", Grant{Rights: Send, Expires: now}, Send, false},
	} {
		if got := c.grant.Holds(now, c.oneOf); got != c.want {
			t.Errorf("%s: Holds = %v, want %v", c.name, got, c.want)
		}
	}
}
