// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"time"

	"overdue/internal/servicebus/sas"
)

// sasLifetime is that of the SDKs.
const sasLifetime = time.Hour

// SAS signs tokens with a shared access key, for Config.Tokens.
func SAS(keyName, key string) func(context.Context, string) (Token, error) {
	return func(_ context.Context, audience string) (Token, error) {
		expires := time.Now().Add(sasLifetime).Truncate(time.Second)
		return Token{Text: sas.Make(keyName, key, audience, expires), Type: TokenSAS, Expires: expires}, nil
	}
}

// Keys is KeysOf with keys that do not change.
func Keys(keys ...sas.Key) func(Credentials) (sas.Grant, error) {
	return KeysOf(func() sas.Keys { return keys })
}
