// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

func TestAReasonIsWhatTheServiceSays(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"AMQP error", &amqp.Error{Condition: amqp.ErrCondNotAllowed, Description: "The queue is full. TrackingId:1_G2, Timestamp:now"}, "The queue is full"},
		{"management node", &link.StatusError{Code: 401, Description: "'Listen' claim(s) are required. Reference:1"}, "'Listen' claim(s) are required"},
		{"HTTP response", &azcore.ResponseError{StatusCode: 503, ErrorCode: "Busy"}, "status 503 Busy"},
		{"missing right", fmt.Errorf("read: %w: Manage claims required.", entities.ErrNoRight), "Manage claims required"},
		{"missing right without words", entities.ErrNoRight, "it needs the Manage right"},
		{"struct of the SDK", errors.New("x: *Error{Condition: amqp:not-allowed, Description: The deadline has passed., Info: map[]}"), "The deadline has passed"},
		{"request of the SDK", errors.New("failed with code 404 and description: no such queue"), "no such queue"},
		{"anything else", errors.New("reset by peer\nand more"), "reset by peer"},
		{"long text", errors.New(strings.Repeat("ä", 400)), strings.Repeat("ä", 300) + "…"},
	} {
		if got := Reason(c.err); got != c.want {
			t.Errorf("%s: Reason = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAnErrorOfTheSDKIsQuotedWithoutItsCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t)
		receiver, err := ns.Client(t).NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnAttach, Error: broker.ServerBusy()})
		_, err = receiver.ReceiveMessages(t.Context(), 1, nil)
		if sb := (*azservicebus.Error)(nil); err == nil || errors.As(err, &sb) && strings.Contains(Reason(err), string(sb.Code)) {
			t.Errorf("Reason(%v) = %q, want no code of the SDK", err, Reason(err))
		}
	})
}

func TestOnlyAFailedDialIsUnreachable(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	err := Unreachable(fmt.Errorf("open: %w", dial))
	if want := "the namespace cannot be reached: dial tcp: connection refused; check the setting namespace and the network"; err == nil || err.Error() != want || !errors.Is(err, dial) {
		t.Errorf("Unreachable of a failed dial = %v, want %q", err, want)
	}
	for _, other := range []error{nil, errors.New("refused"), &net.OpError{Op: "read", Err: errors.New("reset")}} {
		if err := Unreachable(other); err != nil {
			t.Errorf("Unreachable(%v) = %v, want nil", other, err)
		}
	}
}

func TestTheErrorForAMissingRightNamesTheEntity(t *testing.T) {
	if got, want := NoRightToListen("orders").Error(), "the key or the identity lacks the Listen right on orders; see docs/operate/rights.md"; got != want {
		t.Errorf("NoRightToListen = %q, want %q", got, want)
	}
}
