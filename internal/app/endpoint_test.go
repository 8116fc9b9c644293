// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The endpoint has to be served by the proxy: a server of net/http alone changes the names of
// what is sent through it.
func TestPropertiesPassTheEndpointAsTheyAreSpelled(t *testing.T) {
	p := startTest(t, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/orders/messages", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"orderId": {"7"}, "Overdue-Within": {"1h"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("status %d, want 201", resp.StatusCode)
	}
	client, err := p.namespace.SDK()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receiver.PeekMessages(t.Context(), 1, nil)
	if err != nil || len(got) != 1 {
		t.Fatalf("peek = %d messages, %v; want 1", len(got), err)
	}
	if diff := cmp.Diff(map[string]any{"orderId": int32(7), "overdue-within": "1h"}, got[0].ApplicationProperties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}
