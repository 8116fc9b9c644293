// SPDX-License-Identifier: Apache-2.0

package sas_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"overdue/internal/servicebus/sas"
)

// A signature that is wrong in one bit is no signature, whichever byte has it.
func TestEveryByteOfASignatureCounts(t *testing.T) {
	good := sas.Make("k", key, "sb://localhost/orders", expires)
	head, rest, _ := strings.Cut(good, "&sig=")
	encoded, tail, _ := strings.Cut(rest, "&")
	text, err := url.QueryUnescape(encoded)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(signature) != sha256.Size {
		t.Fatalf("the signature has %d bytes, %v, want %d", len(signature), err, sha256.Size)
	}
	with := func(signature []byte) sas.Token {
		return parse(t, head+"&sig="+url.QueryEscape(base64.StdEncoding.EncodeToString(signature))+"&"+tail)
	}
	if !with(signature).SignedWith(key) {
		t.Fatal("SignedWith of the signature as it was made = false, want true")
	}
	for i := range signature {
		for bit := range 8 {
			signature[i] ^= 1 << bit
			if with(signature).SignedWith(key) {
				t.Errorf("SignedWith of a signature whose byte %d is wrong = true, want false", i)
			}
			signature[i] ^= 1 << bit
		}
	}
}
