// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/sas"
)

func TestTheRESTDoorKeepsAppsFromTheMonitorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		c := sc.browser()
		forward := func(element, target string) string {
			return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><` +
				element + ">" + target + "</" + element + "></QueueDescription></content></entry>"
		}
		const refused, token = http.StatusBadRequest, "c0ffee00-0000-0000-0000-000000000000"
		for _, test := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", "/monitor/messages/head?timeout=0", "", refused},
			{"DELETE", "/MONITOR/messages/head?timeout=0", "", refused},
			{"DELETE", "//monitor//messages/head?timeout=0", "", refused},
			{"DELETE", "/%6donitor/messages/head?timeout=0", "", refused},
			{"DELETE", "/orders/../monitor/messages/head?timeout=0", "", refused},
			{"DELETE", "/monitor/messages/1/" + token, "", refused},
			{"PUT", "/monitor/messages/1/" + token, "", refused},
			{"DELETE", "/monitor?api-version=2021-05", "", refused},
			{"PUT", "/monitor?api-version=2021-05", forward("ForwardTo", "orders"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "monitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardDeadLetteredMessagesTo", "sb://namespace.test/Monitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "&#109;onitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "mon<!-- -->itor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "<![CDATA[ mon]]>itor/"), refused},
			{"PUT", "/new?api-version=2021-05", `<!DOCTYPE entry [<!ENTITY m "monitor">]>` + forward("ForwardTo", "&m;"), refused},
			{"PUT", "/new?api-version=2021-05", `<?xml version="1.0" encoding="utf-7"?>` + forward("ForwardTo", "+AG0-onitor"), refused},
			{"PUT", "/new?api-version=2021-05", "<\x00", refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "mon<x>zz</x>itor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "<x>monitor</x>"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "orders</ForwardTo><ForwardTo>monitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "orders</ForwardTo><forwardTo>monitor</forwardTo><ForwardTo>"), refused},
			{"PUT", "/new?api-version=2021-05", forward("x", "<ForwardTo>monitor</ForwardTo>"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "x/../monitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "sb://h/%6donitor"), refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "mon<?x?>itor"), refused},
			{"PUT", "/new?api-version=2021-05", "<entry/>", refused},
			{"PUT", "/new?api-version=2021-05", forward("ForwardTo", "orders"), http.StatusCreated},
			{"GET", "/monitor?api-version=2021-05", "", http.StatusOK},
			{"DELETE", "/monitor/$DeadLetterQueue/messages/head?timeout=0", "", http.StatusNoContent},
			{"DELETE", "/orders/messages/head?timeout=0", "", http.StatusNoContent},
			{"PATCH", "/orders", "", refused},
		} {
			if a := sc.ask(c, test.method, test.path, test.body, "Content-Type", "application/atom+xml"); a.status != test.status {
				t.Errorf("%s %s = %d %s, want %d", test.method, test.path, a.status, a.body, test.status)
			}
		}
	})
}

// A client with the key of one queue does not have its messages forwarded to others with the
// proxy's rights.
func TestAForwardNeedsAKeyThatIsGoodForItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, key = "apps", "a2V5"
		sc := setupREST(t, func(s *setting) {
			s.queues = append(s.queues, "mine/in")
			s.proxy.Upstream.Authorize = func(context.Context, string) (string, error) { return "SharedAccessSignature x", nil }
			s.proxy.Keys = sas.Keys{{Name: name, Value: key, Rights: sas.All, Entity: "mine"}, {Name: "send", Value: key, Rights: sas.Send}}
		})
		c := sc.browser()
		token := func(name, path string) string {
			return sas.Make(name, key, "https://"+endpointName+"/"+path, time.Now().Add(time.Hour))
		}
		body := func(target string) string {
			return `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ForwardTo>` +
				target + `</ForwardTo></QueueDescription></content></entry>`
		}
		for _, test := range []struct {
			target, proof string
			status        int
		}{
			{"mine/in", token(name, "mine/in"), http.StatusCreated},
			{"orders", "", http.StatusUnauthorized},
			{"orders", token(name, "orders"), http.StatusUnauthorized},
			{"sb://namespace.test/orders", token("send", "orders"), http.StatusOK},
		} {
			headers := []string{"Content-Type", "application/atom+xml", "Authorization", token(name, "mine/out")}
			if test.status == http.StatusOK {
				headers = append(headers, "If-Match", "*")
			}
			if test.proof != "" {
				headers = append(headers, supplementaryAuthorization, test.proof)
			}
			a := sc.ask(c, "PUT", "/mine/out?api-version=2021-05", body(test.target), headers...)
			if a.status != test.status {
				t.Errorf("forward to %s = %d %s, want %d", test.target, a.status, a.body, test.status)
			}
		}
	})
}
