// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// The namespace's key is replaced while apps send and receive, and the former one is deleted. Tokens
// last for an hour: three hours later nothing of the former key can be left.
func TestTheKeyOfTheNamespaceIsReplacedWhileAppsSendAndReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, third = "Zmlyc3Q=", "dGhpcmQ="
		rule := brokertest.Key()
		second := rule.PrimaryKey
		rule.PrimaryKey, rule.SecondaryKey = first, second
		tokens := link.NewReplaceableTokens(link.SAS(rule.KeyName, first))
		sc := setupAMQP(t, func(s *setting) {
			s.tokens = tokens
			s.broker.Keys = []broker.AuthorizationRule{rule}
			s.proxy.AMQP.Tokens = func(ctx context.Context, audience string) (relay.Token, error) {
				token, err := tokens.Token(ctx, audience)
				return relay.Token{Text: token.Value, Type: token.Type, Expires: token.Expires}, err
			}
		})
		sender := sc.sender("orders")
		receiver, err := sc.app.NewReceiverForQueue("orders", nil)
		sc.must(err)
		sent, life := 0, 24*time.Hour
		exchange := func() {
			t.Helper()
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{TimeToLive: &life}, nil); err != nil {
				t.Fatalf("SendMessage after %d messages = %v, want nil", sent, err)
			}
			sc.want(sc.post("/orders/messages", "x", "BrokerProperties", fmt.Sprintf(`{"TimeToLive":%d}`, int(life.Seconds()))), http.StatusCreated, "")
			for range 2 {
				ms, err := receiver.ReceiveMessages(t.Context(), 1, nil)
				if err != nil {
					t.Fatalf("ReceiveMessages after %d messages = %v, want nil", sent, err)
				}
				sc.must(receiver.CompleteMessage(t.Context(), ms[0], nil))
				sent++
			}
		}
		exchange()
		before := sc.ns.Net.Conns()
		tokens.Replace(link.SAS(rule.KeyName, second))
		sc.proxy.RenewTokens()
		synctest.Wait()
		rule.PrimaryKey = third
		sc.must(sc.ns.Broker.SetKeys([]broker.AuthorizationRule{rule}))
		for range 18 {
			exchange()
			time.Sleep(10 * time.Minute)
		}
		if after := sc.ns.Net.Conns(); after != before {
			t.Errorf("%d connections to the namespace, want the %d from before", after, before)
		}
		sc.wantCompanions(sent)
	})
}
