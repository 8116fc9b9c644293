// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The sentences that the service was recorded with.
const (
	know          = " To know more visit https://aka.ms/sbResourceMgrExceptions."
	conflict      = "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state." + know + " ."
	noOperation   = "SubCode=40400. Not Found. The Operation doesn't exist." + know + " ."
	notHosted     = "No service is hosted at the specified address."
	noTopic       = "The incoming request is not recognized as a namespace policy put request." + know
	invalidGet    = "The specified HTTP verb (GET) is not valid." + know + " ."
	nothingListed = "Publicly Listed Services"
)

func invalid(verb string) string { return strings.Replace(invalidGet, "GET", verb, 1) }

var tail = regexp.MustCompile(` TrackingId:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_G\d+, SystemTracker:overdue\.test:[^,]*, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`)

func TestWhatCannotBeDoneIsRefusedInTheWordsOfTheService(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	must(t, h, 201, "PUT", "/q"+version, queue)
	for _, tt := range []struct {
		request, body string
		status        int
		says          string
	}{
		{"GET /", "", 200, nothingListed},
		{"GET /none", "", 200, nothingListed},
		{"GET /none/Subscriptions/s", "", 200, nothingListed},
		{"GET /none/Subscriptions", "", 200, nothingListed},
		{"GET /none/Subscriptions/s/Rules/", "", 200, nothingListed},
		{"GET /none/Subscriptions/s/Rules/r", "", 200, nothingListed},
		{"GET /none/$DeadLetterQueue", "", 200, nothingListed},
		{"GET /q/Subscriptions/s", "", 404, "Entity 'overdue:Topic:q|s' was not found." + know},
		{"GET /t/Subscriptions/none", "", 404, "Entity 'overdue:Topic:t|none' was not found." + know},
		{"GET /t/Subscriptions/none/Rules", "", 404, "Entity 'overdue:Topic:t|none' was not found." + know},
		{"GET /t/subscriptions/s/rules/none", "", 404, "Entity 'overdue:Topic:t|s|none' was not found." + know},
		{"GET /q/$DeadLetterQueue", "", 400, invalidGet},
		{"GET /t/$deadletterqueue", "", 400, invalidGet},
		{"GET /t/Subscriptions/s/$DeadLetterQueue", "", 400, invalidGet},
		{"GET /q/$management", "", 400, invalidGet},

		{"UPDATE /none", queue, 404, noOperation},
		{"UPDATE /none", topic, 404, noOperation},
		{"UPDATE /none/Subscriptions/s", subscription, 404, noTopic},
		{"PUT /none/Subscriptions/s", subscription, 404, noTopic},
		{"PUT /none/Subscriptions/s/Rules/r", trueRule, 404, noTopic},
		{"UPDATE /t/Subscriptions/none", subscription, 404, "Entity 'overdue:Topic:t|none' was not found." + know},
		{"UPDATE /t/Subscriptions/s/Rules/none", trueRule, 404, "Entity 'overdue:Topic:t|s|none' was not found." + know},
		{"PUT /q", queue, 409, conflict},
		{"PUT /t", topic, 409, conflict},
		{"PUT /t", queue, 409, conflict},
		{"PUT /t/Subscriptions/s", subscription, 409, "The messaging entity 'overdue:Topic:t|s' already exists." + know},
		{"PUT /t/Subscriptions/s/Rules/$Default", trueRule, 409, "The messaging entity 'overdue:Topic:t|s|$Default' already exists." + know},

		{"PUT /", queue, 401, "Generic: Provided resource identifier '/namespaces/overdue/queues/' is invalid."},
		{"UPDATE /", topic, 401, "Generic: Provided resource identifier '/namespaces/overdue/topics/' is invalid."},
		{"PUT /t/Subscriptions/", subscription, 400, invalid("PUT")},
		{"UPDATE /t/Subscriptions/s/Rules/", trueRule, 400, invalid("PUT")},
		{"PUT /$namespaceinfo", queue, 400, invalid("PUT")},
		{"PUT /$Resources/Queues", queue, 400, invalid("PUT")},
		{"PUT /q/$DeadLetterQueue", queue, 400, invalid("PUT")},
		{"POST /q", queue, 400, invalid("POST")},
		{"PATCH /t", "", 400, invalid("PATCH")},

		{"DELETE /none", "", 404, notHosted},
		{"DELETE /", "", 404, notHosted},
		{"DELETE /none/Subscriptions/s", "", 404, notHosted},
		{"DELETE /none/Subscriptions/s/Rules/r", "", 404, notHosted},
		{"DELETE /t/Subscriptions/none", "", 404, "The messaging entity 'overdue:Topic:t|none' could not be found." + know},
		{"DELETE /t/Subscriptions/s/Rules/none", "", 404, "The messaging entity 'overdue:Topic:t|s|none' could not be found." + know},
		{"DELETE /$Resources/Topics", "", 400, invalid("DELETE")},
		{"DELETE /t/Subscriptions/", "", 400, invalid("DELETE")},
		{"DELETE /t/Subscriptions/s/Rules", "", 400, invalid("DELETE")},

		{"GET /$Resources/Queues?$skip=-1&$top=-1", "", 400, "Parameter 'skip' should be non-negative integer.\r\nParameter name: skip."},
		{"GET /$Resources/Queues?$top=many", "", 400, "Parameter 'top' should be non-negative integer.\r\nParameter name: top."},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		var header []string
		if method == "UPDATE" {
			method, header = "PUT", []string{"If-Match", "*"}
		}
		if !strings.Contains(path, "?") {
			path += version
		}
		status, answer := ask(h, method, path, tt.body, header...)
		if tt.status == 200 {
			if got := element(t, answer, "title"); status != 200 || got != tt.says {
				t.Errorf("%s = %d, a feed with the title %q; want 200, %q", tt.request, status, got, tt.says)
			}
			continue
		}
		if got := tail.ReplaceAllString(element(t, answer, "Detail"), ""); status != tt.status || got != tt.says {
			t.Errorf("%s = %d %q\nwant %d %q", tt.request, status, got, tt.status, tt.says)
		}
	}
}

// recorded is ask with the headers of the answer.
func recorded(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "overdue.test"
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAnswersHaveTheHeadersOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins at midnight of 2000
		n, h := setup(t)
		time.Sleep(5 * time.Millisecond) // of which a third of a hundredth second is 3 or 7
		scene(t, n)
		const tagged, other = "630822816000070000", "" // ticks of .NET
		for _, tt := range []struct {
			request, body string
			status        int
			etag          string
			transport     bool
		}{
			{"PUT /q", queue, 201, other, true},
			{"GET /q", "", 200, tagged, true},
			{"PUT /q", queue, 409, tagged, true},
			{"GET /q/$DeadLetterQueue", "", 400, tagged, true},
			{"PUT /t/Subscriptions/new", subscription, 201, tagged, true},
			{"GET /t/Subscriptions/new", "", 200, tagged, true},
			{"GET /t/Subscriptions/none", "", 404, tagged, true},
			{"GET /t/Subscriptions", "", 200, tagged, true},
			{"PUT /t/Subscriptions/s/Rules/r", trueRule, 201, tagged, true},
			{"GET /t/Subscriptions/s/Rules/", "", 200, tagged, true},
			{"DELETE /t/Subscriptions/new", "", 200, tagged, true},
			{"DELETE /q", "", 200, tagged, true},
			{"GET /q", "", 200, other, true},
			{"DELETE /q", "", 404, other, true},
			{"GET /none/Subscriptions/s", "", 200, other, true},
			{"GET /$Resources/Queues", "", 200, other, false},
			{"GET /$Resources/Topics?$skip=x", "", 400, other, true},
			{"GET /$namespaceinfo", "", 200, other, false},
		} {
			method, path, _ := strings.Cut(tt.request, " ")
			if !strings.Contains(path, "?") {
				path += version
			}
			w := recorded(h, method, path, tt.body)
			got := []any{w.Code, w.Header().Get("ETag"), w.Header().Get("Strict-Transport-Security") != "", w.Header().Get("Server")}
			if diff := cmp.Diff([]any{tt.status, tt.etag, tt.transport, "Microsoft-HTTPAPI/2.0"}, got); diff != "" {
				t.Errorf("%s: status, ETag, whether transport is strict, server (-want +got):\n%s", tt.request, diff)
			}
		}
		time.Sleep(time.Second)
		must(t, h, 201, "PUT", "/q"+version, queue)
		time.Sleep(time.Second)
		w := recorded(h, "PUT", "/q"+version, describe("QueueDescription", "<LockDuration>PT7S</LockDuration>"), "If-Match", "*")
		if got := w.Header().Get("ETag"); w.Code != 200 || got != "630822816020070000" {
			t.Errorf("an update = %d with the ETag %s, want that of the update", w.Code, got)
		}
	})
}

// ids returns the ids of an answer, of a feed and of its entries, and the links, with what comes
// before the path cut off.
func ids(t *testing.T, answer string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`<id>([^<]*)|<link rel="(\w+)" href="([^"]*)|xml:base="([^"]*)`).FindAllStringSubmatch(answer, -1) {
		at := strings.ReplaceAll(m[1]+m[2]+" "+m[3]+m[4], "&amp;", "&")
		all = append(all, strings.ReplaceAll(at, "://overdue.test", ":"))
	}
	return all
}

// The JavaScript SDK takes any prefix, other clients may not.
func TestCountsHaveThePrefixOfTheService(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for path, want := range map[string]string{
		"/t": "d2p1", "/fwd": "d2p1", "/t/Subscriptions/s": "d3p1", "/t/Subscriptions": "d2p1", "/$Resources/Queues": "d2p1",
	} {
		answer := must(t, h, 200, "GET", path+version, "")
		if !strings.Contains(answer, "<CountDetails xmlns:"+want+"=") || !strings.Contains(answer, "<"+want+":ActiveMessageCount>") {
			t.Errorf("GET %s has no counts with the prefix %s:\n%s", path, want, answer)
		}
	}
}

func TestIdsAndLinksAreTheURLThatWasAskedFor(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for _, tt := range []struct {
		request, body string
		want          []string
	}{
		{"PUT /team%2FQ?x=1&api-version=2021-05", queue, []string{"http:/team/Q?x=1&api-version=2021-05 ", "self http:/team/Q?x=1&api-version=2021-05"}},
		{"GET /TEAM/q", "", []string{"http:/TEAM/q ", "self http:/TEAM/q"}},
		{"GET /t/SUBSCRIPTIONS/S?enrich=False&api-version=2021-05", "", []string{
			"sb:/t/SUBSCRIPTIONS/S?enrich=False&api-version=2021-05 ", "self sb:/t/SUBSCRIPTIONS/S?enrich=False&api-version=2021-05"}},
		{"GET /t/subscriptions/s", "", []string{"http:/t/subscriptions/s ", "self http:/t/subscriptions/s"}},
		{"PUT /t/subscriptions/s/rules/a.b?api-version=2021-05", trueRule, []string{
			"http:/t/subscriptions/s/rules/a.b?api-version=2021-05 ", "self http:/t/subscriptions/s/rules/a.b?api-version=2021-05"}},
		{"GET /$resources/Queues?$top=1&api-version=2021-05", "", []string{
			"http:/$resources/Queues?$top=1&api-version=2021-05 ", "self http:/$resources/Queues?$top=1&api-version=2021-05",
			"next http:/$resources/Queues?%24skip=1&%24top=1&api-version=2021-05", " http:/$resources/Queues?$top=1&api-version=2021-05",
			"http:/fwd?api-version=2021-05 ", "self ../fwd?api-version=2021-05"}},
		{"GET /t/Subscriptions?enrich=False&api-version=2021-05", "", []string{
			"http:/t/Subscriptions?enrich=False&api-version=2021-05 ", "self http:/t/Subscriptions?enrich=False&api-version=2021-05",
			" http:/t/Subscriptions?enrich=False&api-version=2021-05", "http:/t/Subscriptions/s?api-version=2021-05 ", "self Subscriptions/s?api-version=2021-05"}},
		{"GET /t/subscriptions/s/Rules/?%24top=1", "", []string{
			"http:/t/subscriptions/s/Rules/?%24top=1 ", "self http:/t/subscriptions/s/Rules/?%24top=1",
			"next http:/t/subscriptions/s/Rules/?%24skip=1&%24top=1", " http:/t/subscriptions/s/Rules/?%24top=1",
			"http:/t/subscriptions/s/Rules/$Default ", "self $Default"}},
		{"GET /$namespaceinfo?api-version=2021-05&enrich=True", "", []string{
			"http:/$namespaceinfo?api-version=2021-05&enrich=True ", "self http:/$namespaceinfo?api-version=2021-05&enrich=True"}},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		_, answer := ask(h, method, path, tt.body)
		if diff := cmp.Diff(tt.want, ids(t, answer)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.request, diff)
		}
	}
}
