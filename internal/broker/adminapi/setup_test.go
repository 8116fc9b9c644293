// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
)

const version = "?api-version=2024-05"

// setup is a namespace and its administration API.
func setup(t testing.TB, configure ...func(*broker.Config, *adminapi.Options)) (*broker.Namespace, http.Handler) {
	t.Helper()
	var cfg broker.Config
	var o adminapi.Options
	for _, f := range configure {
		f(&cfg, &o)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the broker: %v", err)
		}
	})
	return b.Default(), adminapi.New(func(*http.Request) *broker.Namespace { return b.Default() }, o)
}

// ask makes a request and returns status and body of the answer. header are
// names and values in turn.
func ask(h http.Handler, method, target, body string, header ...string) (int, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "overdue.test"
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// must is ask for a request that has to end like this.
func must(t *testing.T, h http.Handler, want int, method, target, body string, header ...string) string {
	t.Helper()
	status, answer := ask(h, method, target, body, header...)
	if status != want {
		t.Fatalf("%s %s = %d, want %d\n%s", method, target, status, want, answer)
	}
	return answer
}

// describe puts elements into an entry that describes an entity.
func describe(kind, elements string) string {
	return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` +
		`<` + kind + ` xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" ` +
		`xmlns:i="http://www.w3.org/2001/XMLSchema-instance">` + elements + `</` + kind + `></content></entry>`
}

var (
	queue        = describe("QueueDescription", "")
	topic        = describe("TopicDescription", "")
	subscription = describe("SubscriptionDescription", "")
	trueRule     = describe("RuleDescription", `<Filter i:type="TrueFilter"/><Name>r</Name>`)
)

// element returns the text of the first element of that name in a document,
// whatever its namespace.
func element(t *testing.T, document, name string) string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	for {
		token, err := d.Token()
		if err != nil {
			t.Fatalf("no element %s in\n%s", name, document)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == name {
			var text struct {
				S string `xml:",chardata"`
			}
			if err := d.DecodeElement(&text, &start); err != nil {
				t.Fatal(err)
			}
			return text.S
		}
	}
}

// bodies are what the SDKs of four languages send, by name of the file.
func bodies(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/bodies/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bodies: %v", err)
	}
	all := make(map[string]string)
	for _, f := range files {
		body, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".xml")] = string(body)
	}
	return all
}

// place is where what a body describes can be put, in a namespace that scene has
// prepared.
func place(body string) string {
	for _, p := range [][2]string{ // a subscription can contain a rule
		{"TopicDescription", "/t/new"}, {"SubscriptionDescription", "/t/Subscriptions/new"}, {"RuleDescription", "/t/Subscriptions/s/Rules/new"},
	} {
		if strings.Contains(body, p[0]+">") {
			return p[1]
		}
	}
	return "/q"
}

// scene makes what the bodies refer to.
func scene(t testing.TB, n *broker.Namespace) {
	t.Helper()
	if _, err := n.CreateQueue(broker.QueueConfig{Name: "fwd"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateTopic(broker.TopicConfig{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateSubscription("t", broker.SubscriptionConfig{Name: "s"}); err != nil {
		t.Fatal(err)
	}
}
