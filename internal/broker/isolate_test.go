// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// queues returns the names of the queues of a namespace.
func queues(n *broker.Namespace) (names []string) {
	for _, q := range n.Queues() {
		names = append(names, q.Config.Name)
	}
	return names
}

func TestClientsNameANamespaceOfTheirOwn(t *testing.T) {
	anonymous := amqp.SASLTypeAnonymous()
	for name, x := range map[string]struct {
		options amqp.ConnOptions
		key     string // of the token, none without
		want    string
	}{
		"nobody":                       {amqp.ConnOptions{HostName: "localhost:5672"}, "", ""},
		"address":                      {amqp.ConnOptions{HostName: "127.0.0.1"}, keyName, ""},
		"the key of everybody":         {amqp.ConnOptions{HostName: "localhost"}, keyName, ""},
		"key of a token":               {amqp.ConnOptions{HostName: "localhost"}, "Orders", "orders"},
		"host":                         {amqp.ConnOptions{HostName: "Orders.localhost:5672"}, keyName, "orders"},
		"host alone":                   {amqp.ConnOptions{HostName: "orders.localhost"}, "", "orders"},
		"key before host":              {amqp.ConnOptions{HostName: "bills.localhost"}, "orders", "orders"},
		"key with SASL":                {amqp.ConnOptions{HostName: "bills.localhost", SASLType: amqp.SASLTypePlain("orders", "any")}, "other", "orders"},
		"the name of a subtest":        {amqp.ConnOptions{HostName: "localhost"}, "TestOrders/Größe & 100%+", "TestOrders/Größe & 100%+"},
		"a name encoded twice":         {amqp.ConnOptions{HostName: "localhost"}, "TestOrders%2Fsub+case", "TestOrders/sub case"},
		"a name that no namespace has": {amqp.ConnOptions{HostName: "localhost"}, strings.Repeat("a", 257), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := brokertest.New(t, func(c *broker.Config) { c.Isolate = true })
				if x.options.SASLType == nil {
					x.options.SASLType = anonymous
				}
				c, err := connect(t, ns, &x.options)
				if err != nil {
					t.Fatal(err)
				}
				if x.key != "" {
					c.sas(x.key, "any", "mine", time.Hour)
				}
				if err := c.send("mine"); err != nil {
					t.Fatal(err)
				}
				c.sas("late", "any", "mine", time.Hour) // counts for nothing any more
				if err := c.send("mine"); err != nil {
					t.Fatal(err)
				}
				q, err := ns.Broker.Namespace(x.want).QueueInfo("mine")
				if err != nil || q.Counts.Active != 2 {
					t.Errorf("the namespace %q has %v active messages, %v, want 2", x.want, q.Counts.Active, err)
				}
				if x.want != "" && len(queues(ns.Broker.Default())) > 0 {
					t.Errorf("the default namespace has %q, want nothing", queues(ns.Broker.Default()))
				}
			})
		})
	}
}

func TestTheSDKHasANamespaceOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Isolate = true })
		for _, name := range []string{"one", "two"} {
			client, err := azservicebus.NewClientFromConnectionString(
				"Endpoint=sb://localhost;SharedAccessKeyName="+name+";SharedAccessKey=any;UseDevelopmentEmulator=true",
				&azservicebus.ClientOptions{NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return ns.Dial(ctx) }})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close(t.Context())
			s, err := client.NewSender("q", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(name)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"one", "two"} {
			if q, err := ns.Broker.Namespace(name).QueueInfo("q"); err != nil || q.Counts.Active != 1 {
				t.Errorf("%s has %v active messages, %v, want 1", name, q.Counts.Active, err)
			}
		}
	})
}
