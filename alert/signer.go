// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix       = "whsec_"
	minSecret          = 24 // bytes, as the specification demands
	maxSecret          = 64
	maxSigningSecrets  = 2 // the new one and the old one
	headerWebhookID    = "Webhook-Id"
	headerWebhookTime  = "Webhook-Timestamp"
	headerWebhookProof = "Webhook-Signature"
)

// signer signs requests as Standard Webhooks 1.0 defines it (standardwebhooks.com): HMAC-SHA256 over
// id, timestamp and body, in a header that names the version of the scheme. It has the key of each
// secret, since the header can carry several signatures: receivers may know the old secret or the
// new one.
type signer struct{ keys [][]byte }

// newSigner makes the signer of some secrets, which may be none. Its errors are of the type
// [SettingError] and show no secret.
func newSigner(secrets []string) (s signer, err error) {
	if len(secrets) > maxSigningSecrets {
		return signer{}, &SettingError{"signingSecret", fmt.Errorf("there are %d secrets; give one, or two while receivers change to a new one", len(secrets))}
	}
	for i, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		if err != nil || len(key) < minSecret || len(key) > maxSecret {
			return signer{}, &SettingError{"signingSecret", fmt.Errorf(
				"secret %d of %d is not whsec_ and then 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)", i+1, len(secrets))}
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// sign adds the headers of a signed request. Without secrets it adds none.
func (s signer) sign(h http.Header, id string, now time.Time, body []byte) {
	if len(s.keys) == 0 {
		return
	}
	at := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, at) // a hash returns no error
		_, _ = mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set(headerWebhookID, id)
	h.Set(headerWebhookTime, at)
	h.Set(headerWebhookProof, strings.Join(signatures, " "))
}
