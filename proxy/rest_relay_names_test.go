// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"
	"testing/synctest"
)

const description = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">%</QueueDescription></content></entry>`

// The namespace's names for itself are replaced by those of the app, which knows the endpoint
// alone.
func TestAnswersNameTheNamespaceAsTheAppDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t, func(s *setting) { s.queues = append(s.queues, "target") })
		c := sc.browser()
		name, _, _ := strings.Cut(endpointName, ".")
		forward := strings.Replace(description, "%", "<ForwardTo>sb://"+endpointName+"/target</ForwardTo>", 1)
		for _, tt := range []struct {
			method, path, body string
			status             int
			say                string
		}{
			{"PUT", "/made?api-version=2021-05", forward, 201, "<id>http://" + endpointName + "/made?api-version=2021-05</id>"},
			{"GET", "/made?api-version=2021-05", "", 200, `<link rel="self" href="http://` + endpointName + `/made?api-version=2021-05">`},
			{"GET", "/made?api-version=2021-05", "", 200, "<ForwardTo>sb://" + endpointName + "/target</ForwardTo>"},
			{"GET", "/made?api-version=2021-05", "", 200, "<author><name>" + name + "</name></author>"},
			{"GET", "/$Resources/Queues?$top=1&api-version=2021-05", "", 200, `<link rel="next" href="http://` + endpointName + `/$Resources/Queues?`},
			{"GET", "/$Resources/Queues?$top=1&api-version=2021-05", "", 200, `<entry xml:base="http://` + endpointName + `/$Resources/Queues?`},
			{"GET", "/$namespaceinfo?api-version=2021-05", "", 200, "<Name>" + name + "</Name>"},
			{"GET", "/$namespaceinfo?api-version=2021-05", "", 200, `<title type="text">` + name + "</title>"},
			{"GET", "/?api-version=2021-05", "", 200, `<title type="text">Publicly Listed Services</title>`},
			{"GET", "/made/$DeadLetterQueue?api-version=2021-05", "", 400, "The specified HTTP verb (GET) is not valid."},
			{"GET", "/made/Subscriptions/s?api-version=2021-05", "", 404, "<Detail>Entity '" + name + ":Topic:made|s' was not found."},
			{"PUT", "/made?api-version=2021-05", forward, 409, "SystemTracker:" + endpointName + ":made,"},
			{"PUT", "/?api-version=2021-05", forward, 401, "/namespaces/" + name + "/queues/"},
			{"DELETE", "/missing/messages/head?timeout=0", "", 410, "SystemTracker:" + endpointName + ":missing/messages/head,"},
		} {
			a := sc.ask(c, tt.method, tt.path, tt.body)
			sc.wantAnswer(tt.method+" "+tt.path, a, tt.status, tt.say)
			if strings.Contains(a.body, namespaceName) {
				t.Errorf("%s %s names %s:\n%s", tt.method, tt.path, namespaceName, a.body)
			}
		}
		q, err := sc.ns.Broker.Default().QueueInfo("made")
		sc.must(err)
		if want := "sb://" + namespaceName + "/target"; q.Config.ForwardTo != want {
			t.Errorf("the namespace has ForwardTo %s, want %s", q.Config.ForwardTo, want)
		}
	})
}
