// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"strings"

	"overdue/internal/servicebus/sas"
)

// isSAS reports whether a token looks like a shared access signature.
func isSAS(token string) bool {
	scheme, _, _ := strings.Cut(token, " ")
	return strings.EqualFold(scheme, sas.Scheme)
}

// prove says what a token is good for at path.
func (k *Keyring) prove(token string, signature bool, path string) (grant, error) {
	switch {
	case signature:
		return k.judge(token, path)
	case token == "":
		return grant{}, sas.ErrMalformedToken
	case k.b.cfg.AcceptJWT:
		return grant{claims: sas.All}, nil
	}
	return grant{}, sas.ErrNotSAS
}

// ErrClaimMissing is wrapped by what Authorize returns for a token that is good,
// but not for this.
var ErrClaimMissing = errors.New("broker: claim missing")

// A claimError reads like the service and wraps ErrClaimMissing.
type claimError struct{ *sas.Refusal }

func (claimError) Unwrap() error { return ErrClaimMissing }

// Authorize says whether a request over HTTP may do what any one of the claims
// allows, at path, that of an entity; "" is the namespace. authorization is the
// header of that name: a shared access signature, or a JSON Web Token, which the
// administration clients send without a scheme. Without keys everything is
// allowed. The error is a *sas.Refusal, or wraps ErrClaimMissing.
func (k *Keyring) Authorize(authorization, path string, oneOf sas.Rights) error {
	if !k.b.Secured() {
		return nil
	}
	if authorization == "" {
		return sas.ErrMissingToken
	}
	g, err := k.prove(authorization, isSAS(authorization), path)
	return g.allows(oneOf, path, err)
}

// AuthorizeKey is Authorize for the whole namespace and somebody who shows a key itself, as people do
// in a browser.
func (k *Keyring) AuthorizeKey(name, presented string, oneOf sas.Rights) error {
	if !k.b.Secured() {
		return nil
	}
	r := k.b.ruleOf(name, presented)
	if r == nil {
		return sas.ErrInvalidKey
	}
	return grant{claims: r.claims()}.allows(oneOf, "", nil)
}

// allows returns why what was proven at path does not do; err is why nothing was.
func (g grant) allows(oneOf sas.Rights, path string, err error) error {
	if err == nil && g.claims&oneOf == 0 {
		err = claimError{sas.Missing(oneOf, path)}
	}
	return err
}
