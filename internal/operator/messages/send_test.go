// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// What the SDK says of a send becomes a sentence, without what it prints for programs.
func TestFailuresOfSendsAreSentences(t *testing.T) {
	ns := brokertest.New(t, func(c *broker.Config) { c.AutoCreate = false })
	sender, err := ns.Client(t).NewSender("nowhere-at-all", nil)
	if err != nil {
		t.Fatal(err)
	}
	missing := sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{missing, `there is no queue or topic "orders"; create it, or correct the name`},
		{azservicebus.ErrMessageTooLarge, "the message is too large for orders; its tier bounds it, and its own limit if it has one"},
		{errors.New("x: *Error{Condition: amqp:not-allowed, Description: The deadline has passed., Info: map[]}"), "send to orders: The deadline has passed"},
		{errors.New("reset by peer"), "send to orders: reset by peer"},
	} {
		if got := sendFailure("orders", c.err).Error(); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// The SDK makes thirteen hours of a hundred days.
func TestALifeThatTheSDKCannotStateIsNotSent(t *testing.T) {
	for ttl, refused := range map[time.Duration]bool{MaxTTL: false, MaxTTL + time.Millisecond: true, 100 * 24 * time.Hour: true} {
		o := SendOptions{Count: 1, Body: "x", TTL: ttl}
		if _, err := o.Message(time.Now()); (err != nil) != refused {
			t.Errorf("--ttl %v: %v, want it refused: %v", ttl, err, refused)
		}
	}
}
