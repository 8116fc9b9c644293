// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The secret, the request and its signature are those of the specification's own example.
func TestASignatureIsThatOfTheSpecification(t *testing.T) {
	s, err := newSigner([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	s.sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature = %s, want %s", got, want)
	}
}

func secretOf(b byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32)))
}

func TestARotationSignsWithBothSecrets(t *testing.T) {
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- request{r.Header, string(b)}
	}))
	defer srv.Close()
	cfg := HTTP{URL: srv.URL, SigningSecrets: []string{secretOf('n'), secretOf('o')}}
	events, err := NewWebhook("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := NewWebhookNotifier("", cfg, Text{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for name, send := range map[string]func() error{
		"event": func() error { return events.Alert(t.Context(), someEvent()) }, "firing": func() error { return groups.Notify(t.Context(), firing()) },
		"resolved": func() error { return groups.Notify(t.Context(), resolved()) },
	} {
		for range 2 {
			if err := send(); err != nil {
				t.Fatal(err)
			}
			r := <-got
			id, at := r.header.Get("Webhook-Id"), r.header.Get("Webhook-Timestamp")
			ids[id] = true
			if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
				t.Errorf("%s: timestamp = %q, want the present time", name, at)
			}
			var want []string
			for _, key := range "no" {
				mac := hmac.New(sha256.New, []byte(strings.Repeat(string(key), 32)))
				mac.Write([]byte(id + "." + at + "." + r.body))
				want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
			}
			if got := r.header.Get("Webhook-Signature"); got != strings.Join(want, " ") {
				t.Errorf("%s: signatures = %q, want %q", name, got, want)
			}
		}
	}
	if len(ids) != 3 || !ids[someEvent().ID] {
		t.Errorf("ids = %v, want one for each body, and that of the event", ids)
	}
}

func TestAnUnsignedRequestHasNoHeadersOfASignature(t *testing.T) {
	h := http.Header{}
	signer{}.sign(h, "id", noon, nil)
	if len(h) != 0 {
		t.Errorf("headers = %v, want none", h)
	}
}

func TestAWeakSigningSecretIsRefusedAndNotShown(t *testing.T) {
	for name, secrets := range map[string][]string{
		"short": {"whsec_aHVudGVyMg=="}, "no base64": {"whsec_hunter2!"}, "one of two": {secretOf('n'), "hunter2"},
		"three": {secretOf('n'), secretOf('o'), secretOf('p')}, "long": {secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 65))},
	} {
		_, err := NewWebhook("", HTTP{URL: "http://localhost", SigningSecrets: secrets})
		if bad := (*SettingError)(nil); !errors.As(err, &bad) || bad.Key != "webhook.signingSecret" {
			t.Errorf("%s: %v, want an error about signingSecret", name, err)
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(err.Error(), strings.TrimPrefix(secret, secretPrefix)) {
				t.Errorf("%s: the error shows a secret: %v", name, err)
			}
		}
	}
}
