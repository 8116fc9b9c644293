// SPDX-License-Identifier: Apache-2.0

package atom_test

import (
	"net/url"
	"strings"
	"testing"

	"overdue/internal/servicebus/atom"
)

// A namespace speaks of itself with https, in sentences that name it by its first label, and of
// others, which are left alone.
func TestNamesOfANamespaceInAzureAreTranslated(t *testing.T) {
	n := atom.NewNaming(url.URL{Scheme: "http", Host: "shop.internal:8080", Path: "/orders"}, "contoso.servicebus.windows.net")
	for from, want := range map[string]string{
		"<id>https://contoso.servicebus.windows.net/orders?x=1</id>":                                   "<id>http://shop.internal:8080/orders?x=1</id>",
		"<id>sb://contoso.servicebus.windows.net/t/Subscriptions/s</id>":                               "<id>sb://shop.internal:8080/t/Subscriptions/s</id>",
		`<link rel="self" href="../orders"/>`:                                                          `<link rel="self" href="../orders"/>`,
		"<author><name>contoso</name></author>":                                                        "<author><name>shop</name></author>",
		"<Name>contoso</Name>":                                                                         "<Name>contoso</Name>", // a rule's
		"<UserMetadata>https://contoso.servicebus.windows.net/orders</UserMetadata>":                   "<UserMetadata>https://contoso.servicebus.windows.net/orders</UserMetadata>",
		"<ForwardTo>https://contoso.servicebus.windows.net/b</ForwardTo>":                              "<ForwardTo>https://shop.internal:8080/b</ForwardTo>",
		"<Detail>'contoso:Topic:t|s', SystemTracker:contoso.servicebus.windows.net:t</Detail>":         "<Detail>'shop:Topic:t|s', SystemTracker:shop.internal:8080:t</Detail>",
		"<Detail>the namespace contoso is being throttled</Detail>":                                    "<Detail>the namespace shop is being throttled</Detail>",
		"no XML, " + strings.Repeat("x", 200_000) + "<id>https://contoso.servicebus.windows.net/</id>": "no XML, " + strings.Repeat("x", 200_000) + "<id>http://shop.internal:8080/</id>",
		"contoso</": "contoso</",
	} {
		var got strings.Builder
		if err := n.Copy(&got, strings.NewReader(from)); err != nil || got.String() != want {
			t.Errorf("%.200s became %.200s, %v; want %.200s", from, got.String(), err, want)
		}
	}
}

func TestForwardsAreTranslatedWhereTheyNameTheEndpoint(t *testing.T) {
	n := atom.NewNaming(url.URL{Scheme: "http", Host: "shop.internal:8080", Path: "/orders"}, "contoso.servicebus.windows.net")
	for from, want := range map[string]string{
		"<ForwardTo>sb://shop.internal:8080/b</ForwardTo>":                                                   "<ForwardTo>sb://contoso.servicebus.windows.net/b</ForwardTo>",
		"<a:ForwardDeadLetteredMessagesTo x='y'> https://SHOP.internal/b/</a:ForwardDeadLetteredMessagesTo>": "<a:ForwardDeadLetteredMessagesTo x='y'> https://contoso.servicebus.windows.net/b/</a:ForwardDeadLetteredMessagesTo>",
		"<ForwardTo>sb://other.internal/b</ForwardTo>":                                                       "<ForwardTo>sb://other.internal/b</ForwardTo>",
		"<ForwardTo>b</ForwardTo><UserMetadata>sb://shop.internal:8080/</UserMetadata>":                      "<ForwardTo>b</ForwardTo><UserMetadata>sb://shop.internal:8080/</UserMetadata>",
	} {
		if got := string(n.Forwards([]byte(from))); got != want {
			t.Errorf("%s became %s, want %s", from, got, want)
		}
	}
}
