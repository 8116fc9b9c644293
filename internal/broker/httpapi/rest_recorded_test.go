// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
)

// Recordings of the service show facts that its documentation leaves out. These are the type of
// answers without a body and of messages without one, the partition key of a session, and an id of
// 32 digits. An unlock counts.
func TestMessagesOverHTTPLookAsTheServiceWasRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		const plain = "application/xml; charset=utf-8"
		typed := func(what string, a answered, status int, kind string) answered {
			t.Helper()
			if got := a.header.Get("Content-Type"); a.status != status || got != kind {
				t.Errorf("%s = %d of the type %q, want %d, %q", what, a.status, got, status, kind)
			}
			if got := a.header.Get("Server"); got != "Microsoft-HTTPAPI/2.0" {
				t.Errorf("%s: the server is %q", what, got)
			}
			return a
		}
		typed("send", sc.do("POST", "/q/messages", "a", "Content-Type", "text/plain", "BrokerProperties", `{"SessionId":"s"}`), http.StatusCreated, plain)
		typed("send a batch", sc.do("POST", "/q/messages", `[{"Body":"b"}]`, "Content-Type", batchOf), http.StatusCreated, plain)
		first := typed("peek-lock", sc.do("POST", "/q/messages/head?timeout=0", ""), http.StatusCreated, "text/plain")
		properties := first.header.Get("BrokerProperties")
		if !regexp.MustCompile(`"DeliveryCount":1,.*"MessageId":"[0-9a-f]{32}","PartitionKey":"s","SequenceNumber":1,"SessionId":"s",`).MatchString(properties) {
			t.Errorf("BrokerProperties %s, want the first delivery, an id of 32 digits, and the session as the partition key", properties)
		}
		at := first.header.Get("Location")
		typed("renew", sc.do("POST", at, ""), http.StatusOK, plain)
		typed("unlock", sc.do("PUT", at, ""), http.StatusOK, plain)
		again := typed("receive", sc.do("DELETE", "/q/messages/head?timeout=0", ""), http.StatusOK, "text/plain")
		if properties := again.header.Get("BrokerProperties"); !regexp.MustCompile(`"DeliveryCount":2,`).MatchString(properties) {
			t.Errorf("BrokerProperties after an unlock %s, want the second delivery", properties)
		}
		typed("receive the message of a batch", sc.do("DELETE", "/q/messages/head?timeout=0", ""), http.StatusOK, plain)
		typed("receive from an empty queue", sc.do("DELETE", "/q/messages/head?timeout=0", ""), http.StatusNoContent, plain)
	})
}
