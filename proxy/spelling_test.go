// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const postLine = "POST /orders/messages HTTP/1.1\r\nHost: h\r\n"

// A property that states a deadline has one spelling, the one that the monitor knows. Everything
// else arrives as it was sent.
func TestPropertiesKeepTheSpellingOfTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		conn := sc.serve()
		go write(conn, postLine+"tenantId: t\r\norder-id: 7\r\nCE-Source: s\r\nOverdue-Within: 1h\r\nCE-ExpiryTime: 2033-11-06T08:49:37Z\r\n"+
			"Content-Length: 5\r\n\r\nhello")
		if status, body := sc.answered(bufio.NewReader(conn)); status != http.StatusCreated {
			t.Fatalf("status %d %s, want 201", status, body)
		}
		want := map[string]any{
			"tenantId": "t", "order-id": int32(7), "CE-Source": "s",
			"overdue-within": "1h", "ce-expirytime": time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC),
		}
		if diff := cmp.Diff(want, sc.messages("orders")[0].ApplicationProperties); diff != "" {
			t.Errorf("properties (-want +got):\n%s", diff)
		}
	})
}

// write sends text. It drops the error: after a failed write no answer comes, and the test that
// waits for it fails.
func write(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }
