// SPDX-License-Identifier: Apache-2.0

package address_test

import (
	"errors"
	"strings"
	"testing"

	"overdue/internal/servicebus/address"
)

func TestAddressesOfEveryClientAreRead(t *testing.T) {
	q := address.Address{Name: "q"}
	s := address.Address{Name: "team/t", Subscription: "s"}
	with := func(a address.Address, sub address.SubQueue, node address.Node) address.Address {
		a.SubQueue, a.Node = sub, node
		return a
	}
	for text, want := range map[string]struct {
		address   address.Address
		canonical string
	}{
		"":                                   {address.Address{}, ""},
		"/":                                  {address.Address{}, ""},
		"sb://h":                             {address.Address{}, ""},
		"SB://h:5671/":                       {address.Address{}, ""},
		"q":                                  {q, "q"},
		"/q":                                 {q, "q"}, // .NET
		"q/":                                 {q, "q"},
		"amqps://[::1]:5671/q":               {q, "q"}, // Python
		"amqp://h//q":                        {q, "q"},
		"https://h/q/$management":            {with(q, address.Main, address.Management), "q/$management"},
		"q/$Management/":                     {with(q, address.Main, address.Management), "q/$management"},
		"q/$deadletterqueue":                 {with(q, address.DeadLetter, address.Messages), "q/$DeadLetterQueue"},
		"q/$DeadLetterQueue/$management":     {with(q, address.DeadLetter, address.Management), "q/$DeadLetterQueue/$management"},
		"q/$transfer/$DeadLetterQueue":       {with(q, address.TransferDeadLetter, address.Messages), "q/$Transfer/$DeadLetterQueue"},
		"team/t/subscriptions/s":             {s, "team/t/Subscriptions/s"},
		"team/t/SUBSCRIPTIONS/s/$management": {with(s, address.Main, address.Management), "team/t/Subscriptions/s/$management"},
		"/team/t/Subscriptions/s/$DEADLETTERQUEUE": {with(s, address.DeadLetter, address.Messages), "team/t/Subscriptions/s/$DeadLetterQueue"},
		"$cbs":             {address.Address{Node: address.CBS}, "$cbs"},
		"amqps://h/$CBS/":  {address.Address{Node: address.CBS}, "$cbs"},
		"subscriptions/q":  {address.Address{Name: "subscriptions/q"}, "subscriptions/q"},
		"A.b-c_9~x/y..z/1": {address.Address{Name: "A.b-c_9~x/y..z/1"}, "A.b-c_9~x/y..z/1"},
	} {
		got, err := address.Parse(text)
		if err != nil || got != want.address || got.String() != want.canonical || got.Key() != strings.ToLower(want.canonical) {
			t.Errorf("Parse(%q) = %+v, %v (%s); want %+v (%s)", text, got, err, got, want.address, want.canonical)
		}
	}
}

func TestWhatIsNotPlainIsRefused(t *testing.T) {
	for _, text := range []string{
		"//q", "q//", "a//b", "amqps://h///q", "//", "q/$management//", "q//$management",
		".", "..", "a/../b", "a/./b", "a/.../b", "q/..", "../q", "$.", "$", "q/$",
		"q%2Fb", "q/%24management", "%71", "q%", "a%2e%2e/b", "sb://h/q%20",
		`a\b`, `\q`, "q\x00", "q\n", "q\u0085", "q\ufeff", "a b", " q", "q ", "q\t",
		"q?x", "q#x", "q@h", "q:1", "q;x", "q,x", "q*", "q<x>", "q&amp;", "q|x", "q+x", "q=x", "q'x", "(q)",
		"ä", "q\u212a", "q\u017f", "q\xff", "о", "ｑ",
		"q/$managementx", "$management", "/$management", "$deadletterqueue", "$transfer/$deadletterqueue", "q/$transfer",
		"q/$cbs", "$cbs/q", "q/$x/y", "q/$deadletterqueue/x", "q/$management/$management", "q/$deadletterqueue/$deadletterqueue",
		"q/$management/$deadletterqueue", "$namespaceinfo", "$Resources/queues", "e/ConsumerGroups/$default/Partitions/0",
		"t/Subscriptions", "t/subscriptions/", "t/Subscriptions/s/x", "t/Subscriptions/s/Rules/r", "a/Subscriptions/b/Subscriptions/c",
		"t/Subscriptions/" + strings.Repeat("s", 51), strings.Repeat("q", 261), strings.Repeat("q/", 1000) + "q",
		"://q", "1a://h/q", "a b://h/q", "a/b://h/q", "ä://h/q", strings.Repeat("s", 33) + "://h/q", "sb://", "sb:///q", "sb://user@h/q", "sb://h%2fq/x", "sb://h?x/q", "sb://h\\q/x", "sb://" + strings.Repeat("h", 300) + "/q",
	} {
		if got, err := address.Parse(text); !errors.Is(err, address.ErrNotPlain) {
			t.Errorf("Parse(%.60q) = %+v, %v; want ErrNotPlain", text, got, err)
		} else if len(err.Error()) > 450*4 || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%.60q): %q is no sentence", text, err)
		}
	}
}

// MassTransit names topics so, and Service Bus takes every sequence of these characters.
func TestANameMayBeginAndEndWithAnySign(t *testing.T) {
	for _, name := range []string{"MassTransit/Fault--Shop/Order--", ".q", "q-", "_q", "-q", "q.", "q/b-", "q/.b", "-", "_"} {
		for _, text := range []string{name, "sb://h/" + name, "random://h/" + name, name + "/Subscriptions/_s-"} {
			a, err := address.Parse(text)
			if err != nil || a.Name != name {
				t.Errorf("Parse(%q) = %+v, %v; want the name %q", text, a, err, name)
			}
		}
	}
}

func TestNamesInConfigurationsAreBare(t *testing.T) {
	for text, want := range map[string]bool{
		"orders": true, "eu/orders": true, "t/Subscriptions/s": true, "t/subscriptions/s": true,
		"": false, "/orders": false, "orders/": false, "sb://h/orders": false, "orders/$DeadLetterQueue": false,
		"orders/$management": false, "$cbs": false, "a/../b": false, "a b": false,
	} {
		if _, err := address.Name(text); (err == nil) != want || err != nil && !errors.Is(err, address.ErrNotPlain) {
			t.Errorf("Name(%q) = %v, want ok: %v", text, err, want)
		}
	}
}

func TestAudiencesResourcesAndURLsAreReadAlike(t *testing.T) {
	for name, c := range map[string]struct {
		read func(string) (string, error)
		text string
		want string // "!" = refused
	}{
		"an audience":                      {address.Audience, "amqp://h/orders", "orders"},
		"an audience without a scheme":     {address.Audience, "h/orders", "h/orders"},
		"of a node":                        {address.Audience, "sb://h:1/Orders/$management", "Orders/$management"},
		"of the namespace":                 {address.Audience, "sb://h/", ""},
		"with a query":                     {address.Audience, "https://h/orders?api-version=1/../x", "orders"},
		"with dots":                        {address.Audience, "sb://h/orders/..", "!"},
		"a resource":                       {address.Resource, "https://h/orders", "orders"},
		"a resource without a scheme":      {address.Resource, "h/orders", "orders"},
		"a host alone":                     {address.Resource, "h", ""},
		"a host and a query":               {address.Resource, "https://h?api-version=1", ""},
		"a resource with escapes":          {address.Resource, "https://h/a%2Fb", "a/b"},
		"a resource of a rule":             {address.Resource, "https://h/t/Subscriptions/s/Rules/my%20rule", "t/Subscriptions/s/Rules/my rule"},
		"a resource with other escapes":    {address.Resource, "https://h/a%20b", "!"},
		"a URL":                            {address.URLPath, "/orders", "orders"},
		"with a slash behind":              {address.URLPath, "/orders/", "orders"},
		"with an escaped slash":            {address.URLPath, "/eu%2forders", "eu/orders"},
		"with an escaped dollar sign":      {address.URLPath, "/orders/%24DeadLetterQueue", "orders/$DeadLetterQueue"},
		"a list":                           {address.URLPath, "/$Resources/queues", "$Resources/queues"},
		"a rule":                           {address.URLPath, "/t/Subscriptions/s/Rules/$Default", "t/Subscriptions/s/Rules/$Default"},
		"a rule with escapes":              {address.URLPath, "/t/Subscriptions/s/Rules/%C3%A4%20b", "t/Subscriptions/s/Rules/ä b"},
		"a rule with a slash":              {address.URLPath, "/t/Subscriptions/s/Rules/a%252Fb", "!"},
		"a rule of dots":                   {address.URLPath, "/t/Subscriptions/s/Rules/%2E%2E", "!"},
		"a topic with escapes, and a rule": {address.URLPath, "/t%20/Subscriptions/s/Rules/r", "!"},
		"escaped twice":                    {address.URLPath, "/eu%252Forders", "!"},
		"an escaped letter":                {address.URLPath, "/order%73", "!"},
		"escaped dots":                     {address.URLPath, "/a/%2e%2e/b", "!"},
		"slashes":                          {address.URLPath, "/orders//", "!"},
		"an escaped slash in front":        {address.URLPath, "/%2Forders", "!"},
	} {
		got, err := c.read(c.text)
		if err != nil {
			got = "!"
		}
		if got != c.want || err != nil && !errors.Is(err, address.ErrNotPlain) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// An address has one canonical form. It parses to the same address, and every other spelling of the
// address has the same canonical form.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "q", "/Q/", "sb://h/q/$Management", "t/subscriptions/s/$Transfer/$DeadLetterQueue/$management", "$CBS", "a/../b", "q//", "q%2F", "amqp://h//q", "subscriptions/subscriptions/x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := address.Parse(text)
		if err != nil {
			if !errors.Is(err, address.ErrNotPlain) || a != (address.Address{}) {
				t.Fatalf("Parse(%q) = %+v, %v", text, a, err)
			}
			return
		}
		for _, spelling := range []string{a.String(), "/" + a.String(), strings.ToUpper(a.String()), "amqps://h:1/" + a.Key()} {
			again, err := address.Parse(spelling)
			if err != nil || again.Folded() != a.Folded() || again.Key() != a.Key() {
				t.Fatalf("Parse(%q) = %+v, and %q, which means the same, is %+v, %v", text, a, spelling, again, err)
			}
		}
		if strings.ContainsAny(a.String(), "%\\?#") || strings.Contains("/"+a.String()+"/", "//") && !a.IsNamespace() || strings.Contains("/"+a.String()+"/", "/../") {
			t.Fatalf("Parse(%q) = %q, which is not plain", text, a)
		}
		if path, err := address.URLPath("/" + a.String()); err != nil || path != a.String() {
			t.Fatalf("URLPath(%q) = %q, %v", a, path, err)
		}
	})
}
