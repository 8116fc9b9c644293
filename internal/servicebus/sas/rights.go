// SPDX-License-Identifier: Apache-2.0

package sas

import (
	"fmt"
	"strings"
	"time"
)

// Rights are what a key lets its bearer do, one or several of them. In refusals
// the service calls them claims.
type Rights uint8

// The rights of Service Bus. A key for Manage has all three.
const (
	Send Rights = 1 << iota
	Listen
	Manage

	All = Send | Listen | Manage
)

// String names the rights as refusals do.
func (r Rights) String() string {
	var names []string
	for _, n := range []struct {
		right Rights
		name  string
	}{{Listen, "Listen"}, {Manage, "Manage"}, {Send, "Send"}} {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// A Refusal is why a token or a key is not good. Its text is that of the service:
// what stands before the colon people search for. It shows nothing of either.
type Refusal struct{ text string }

func (e *Refusal) Error() string { return e.text }

// The refusals that say nothing of the token at hand.
var (
	ErrMissingToken     = &Refusal{"MissingToken: The authorization header was not found."}
	ErrMalformedToken   = &Refusal{"MalformedToken: The credentials contained in the authorization header are not in the WRAP format."}
	ErrInvalidSignature = &Refusal{"InvalidSignature: The token has an invalid signature."}
	ErrInvalidAudience  = &Refusal{"InvalidAudience: The authorization header contains a token with a wrong audience."}
	ErrInvalidKey       = &Refusal{"InvalidKey: The name or the key is wrong."}
	ErrNotSAS           = &Refusal{"InvalidToken: Shared access signatures are taken here, not JSON Web Tokens."}
)

// Expired is the refusal of a token that held until at.
func Expired(at time.Time) *Refusal {
	return &Refusal{fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s'.", at.UTC().Format("2006-01-02 15:04:05Z"))}
}

// Missing is the refusal of a token that is good for something else than what is
// at path. The rights are those of which each alone would do.
func Missing(oneOf Rights, path string) *Refusal {
	return &Refusal{fmt.Sprintf("Unauthorized access. '%v' claim(s) are required to perform this operation. Resource: '/%.300s'.", oneOf, path)}
}
