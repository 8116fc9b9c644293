// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"
	"testing/synctest"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

// An app knows the namespace by the address that it has connected to, and finds that in the errors
// of the namespace.
func TestErrorsNameTheNamespaceAsTheClientDoes(t *testing.T) {
	const behind = "'sb://contoso.servicebus.windows.net/orders' could not be found. TrackingId:1_G2, SystemTracker:contoso:Queue:orders"
	const own = "'sb://localhost/orders' could not be found. TrackingId:1_G2, SystemTracker:localhost:Queue:orders"
	n := newNaming("contoso.servicebus.windows.net", "localhost:5672")
	shared := &amqp.Error{Condition: amqp.ErrCondNotFound, Description: behind}
	want := &amqp.Error{Condition: amqp.ErrCondNotFound, Description: own}
	for _, tc := range []struct{ p, want amqp.Performative }{
		{&amqp.Detach{Closed: true, Error: shared}, &amqp.Detach{Closed: true, Error: want}},
		{&amqp.End{Error: shared}, &amqp.End{Error: want}},
		{&amqp.Disposition{State: &amqp.Rejected{Error: shared}}, &amqp.Disposition{State: &amqp.Rejected{Error: want}}},
		{&amqp.Disposition{State: &amqp.Rejected{}}, &amqp.Disposition{State: &amqp.Rejected{}}},
		{&amqp.Disposition{State: amqp.Accepted{}}, &amqp.Disposition{State: amqp.Accepted{}}},
		{&amqp.End{}, &amqp.End{}},
	} {
		if n.frame(tc.p); cmp.Diff(tc.want, tc.p) != "" {
			t.Errorf("frame (-want +got):\n%s", cmp.Diff(tc.want, tc.p))
		}
	}
	if shared.Description != behind {
		t.Errorf("the error itself says %q, want it untouched", shared.Description)
	}
	for name, of := range map[string]response{
		"a failure": failure(statusNotFound, amqp.ErrCondNotFound, behind),
		"a success": {status: statusAccepted, description: behind},
	} {
		m, err := amqp.ParseMessage(n.response(of.encode(&returnAddress{})))
		if err != nil {
			t.Fatal(err)
		}
		if of.succeeded() {
			want.Description = behind
		} else {
			want.Description = own
		}
		if got := readResponse(&m); got.description != want.Description || got.status != of.status || got.condition != of.condition {
			t.Errorf("%s is %+v, want %+v with %q", name, got, of, want.Description)
		}
	}
	if newNaming("overdue.test", "overdue.test") != nil || newNaming("overdue.test", "") != nil {
		t.Error("there is something to translate where the client states no other host")
	}
}

func TestALinkToWhatIsMissingIsRefusedInTheNameOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *Config) { c.Hostname = "contoso.servicebus.windows.net" })
		nc, err := s.dial(t.Context())
		s.must(err)
		c, err := goamqp.NewConn(t.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous(), HostName: "sidecar.test"})
		s.must(err)
		defer c.Close()
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		_, err = session.NewSender(t.Context(), "orders/$nothing", nil)
		if err == nil || strings.Contains(err.Error(), "contoso") {
			t.Errorf("NewSender = %v, want a refusal without the name behind", err)
		}
	})
}
