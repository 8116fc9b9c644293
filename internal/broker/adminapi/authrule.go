// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"crypto/rand"
	"encoding/base64"
	"time"

	"overdue/internal/broker"
)

// Bounds of the service.
const (
	maxAuthorizationRules = 12
	maxKeyName            = 256 // bytes
	maxKey                = 256 // bytes
)

// authorizationRules are the keys that are good for one entity.
func authorizationRules[T any](at func(*T) *[]broker.AuthorizationRule) field[T] {
	return field[T]{
		name: "AuthorizationRules",
		copy: copies(at),
		write: func(w writer, v *T) {
			w.open("AuthorizationRules")
			for _, r := range *at(v) {
				writeAuthorizationRule(w, r)
			}
			w.close("AuthorizationRules")
		},
		read: func(n *node, v *T) error {
			if len(n.children) > maxAuthorizationRules {
				return badRequest("There are more than %d authorization rules.", maxAuthorizationRules)
			}
			var rules []broker.AuthorizationRule
			for _, c := range n.children {
				r, err := readAuthorizationRule(c)
				if err != nil {
					return err
				}
				for _, other := range rules {
					if other.KeyName == r.KeyName {
						return badRequest("There is more than one authorization rule '%.100s'.", r.KeyName)
					}
				}
				rules = append(rules, r)
			}
			*at(v) = rules
			return nil
		},
	}
}

func writeAuthorizationRule(w writer, r broker.AuthorizationRule) {
	w.open("AuthorizationRule", "i:type", "SharedAccessAuthorizationRule")
	w.text("ClaimType", "SharedAccessKey")
	w.text("ClaimValue", "None")
	w.open("Rights")
	for _, right := range []struct {
		has  bool
		name string
	}{{r.Manage, "Manage"}, {r.Send, "Send"}, {r.Listen, "Listen"}} {
		if right.has {
			w.text("AccessRights", right.name)
		}
	}
	w.close("Rights")
	// Only what a client said: tests of the Go SDK compare rules with what they sent.
	if !r.CreatedAt.IsZero() {
		w.text("CreatedTime", formatTime(r.CreatedAt))
	}
	if !r.ModifiedAt.IsZero() {
		w.text("ModifiedTime", formatTime(r.ModifiedAt))
	}
	w.text("KeyName", r.KeyName)
	w.text("PrimaryKey", r.PrimaryKey)
	w.text("SecondaryKey", r.SecondaryKey)
	w.close("AuthorizationRule")
}

// readRights reads the rights of a rule, which may lack the element.
func readRights(n *node, r *broker.AuthorizationRule) error {
	var rights []*node
	if n != nil {
		rights = n.children
	}
	for _, right := range rights {
		switch right.value() {
		case "Manage":
			r.Manage = true
		case "Send":
			r.Send = true
		case "Listen":
			r.Listen = true
		default:
			return badRequest("The right '%.100s' of the authorization rule '%s' does not exist.", right.value(), r.KeyName)
		}
	}
	switch {
	case !r.Manage && !r.Send && !r.Listen:
		return badRequest("The authorization rule '%s' has no right.", r.KeyName)
	case r.Manage && (!r.Send || !r.Listen):
		return badRequest("The authorization rule '%s' has the Manage right, which demands Send and Listen.", r.KeyName)
	}
	return nil
}

// readAuthorizationRule makes the keys that a rule does not bring.
func readAuthorizationRule(n *node) (broker.AuthorizationRule, error) {
	var r broker.AuthorizationRule
	if k := n.child("KeyName"); k != nil {
		r.KeyName = k.value()
	}
	if r.KeyName == "" || len(r.KeyName) > maxKeyName {
		return r, badRequest("An authorization rule needs a KeyName of at most %d bytes.", maxKeyName)
	}
	if err := readRights(n.child("Rights"), &r); err != nil {
		return r, err
	}
	for _, k := range []struct {
		name string
		at   *string
	}{{"PrimaryKey", &r.PrimaryKey}, {"SecondaryKey", &r.SecondaryKey}} {
		if given := n.child(k.name); given != nil {
			*k.at = given.value()
		}
		if len(*k.at) > maxKey {
			return r, badRequest("The %s of the authorization rule '%s' is longer than %d bytes.", k.name, r.KeyName, maxKey)
		}
		if *k.at == "" {
			*k.at = newKey()
		}
	}
	for _, at := range []struct {
		name string
		at   *time.Time
	}{{"CreatedTime", &r.CreatedAt}, {"ModifiedTime", &r.ModifiedAt}} {
		if given := n.child(at.name); given != nil {
			t, err := time.Parse(time.RFC3339Nano, given.value())
			if err != nil {
				return r, given.invalid("it is no time")
			}
			*at.at = t
		}
	}
	return r, nil
}

// newKey is like those that the service makes.
func newKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails, by its documentation
	return base64.StdEncoding.EncodeToString(b)
}
