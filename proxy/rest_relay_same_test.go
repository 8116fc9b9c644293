// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// Values that differ from one exchange to the next though nothing is different.
var varying = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`TrackingId:\w+`), "TrackingId:ID"},
	{regexp.MustCompile(`https?://[^/<" ]+`), "http://HOST"},
	{regexp.MustCompile(`sb://[^/<" ]+`), "sb://HOST"},
	{regexp.MustCompile(`SystemTracker:[^:]+:`), "SystemTracker:HOST:"},
	{regexp.MustCompile(`"SequenceNumber":\d+`), `"SequenceNumber":N`},
	{regexp.MustCompile(`/messages/\d+/`), "/messages/N/"},
	{regexp.MustCompile(`Accessed[^<]*<|UpdatedAt>[^<]*<|CreatedAt>[^<]*<|updated>[^<]*<|published>[^<]*<`), "TIME<"},
	{regexp.MustCompile(`(?m)^Date: [^\r]*`), "Date: NOW"},
}

// exchange writes a request as it stands and reads the answer: its first line, its headers in some
// order, its body.
func exchange(t *testing.T, dial func(context.Context) (net.Conn, error), request string) []string {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	go func() { _, _ = io.WriteString(nc, request) }() // the server may answer, and hang up, before it has read all
	answer, err := io.ReadAll(nc)
	if err != nil && len(answer) == 0 {
		t.Fatalf("%q: %v", request, err)
	}
	text := string(answer)
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.with)
	}
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	return append(lines, body)
}

// Every answer that the namespace gives comes through the endpoint as it is, whatever is asked,
// well or badly.
func TestAnswersAreTheSameAsWithoutTheEndpoint(t *testing.T) {
	const token = "c0ffee00-0000-4000-8000-000000000000"
	const atom = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><LockDuration>PT30S</LockDuration></QueueDescription></content></entry>`
	requests := []string{
		"POST /QUEUE/messages/head?timeout=0 HTTP/1.1\r\n",
		"POST /QUEUE/messages/head HTTP/1.1\r\n",
		"DELETE /QUEUE/messages/head?timeout=1&api-version=2015-01 HTTP/1.1\r\n",
		"DELETE /QUEUE/Messages/Head/?timeout=0 HTTP/1.1\r\n",
		"DELETE /QUEUE/messages/head?timeout=0 HTTP/1.1\r\n",
		"POST /QUEUE/messages/head?timeout=soon HTTP/1.1\r\n",
		"POST /QUEUE/messages/head?timeout=0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n?CHUNKED",
		"POST /missing/messages/head?timeout=0 HTTP/1.1\r\n",
		"DELETE /QUEUE/messages/1/" + token + " HTTP/1.1\r\n",
		"PUT /QUEUE/messages/1/" + token + " HTTP/1.1\r\nContent-Length: 0\r\n",
		"POST /QUEUE/messages/1/" + token + " HTTP/1.1\r\nContent-Length: 0\r\n",
		"POST /QUEUE/messages/1/nonsense HTTP/1.1\r\nContent-Length: 0\r\n",
		"GET /QUEUE HTTP/1.1\r\n",
		"HEAD /QUEUE?api-version=2021-05 HTTP/1.1\r\n",
		"GET /QUEUE?api-version=2021-05 HTTP/1.1\r\naccept: application/atom+xml\r\n",
		"GET /missing?api-version=2021-05 HTTP/1.1\r\n",
		"GET /$nservicebus-verification-queue?api-version=2021-05 HTTP/1.1\r\n",
		"GET /QUEUE/$nothing?api-version=2021-05 HTTP/1.1\r\n",
		"GET /QUEUE/$management HTTP/1.1\r\n",
		"HEAD /QUEUE/$DeadLetterQueue HTTP/1.1\r\n",
		"GET /QUEUE/Subscriptions/s/Rules/r/more HTTP/1.1\r\n",
		"GET /$namespaceinfo?api-version=2021-05 HTTP/1.1\r\n",
		"GET /$Resources/queues?api-version=2021-05&$skip=1&$top=1 HTTP/1.1\r\n",
		"PUT /new-QUEUE?api-version=2021-05 HTTP/1.1\r\nContent-Type: application/atom+xml\r\n?BODY" + atom,
		"PUT /new-QUEUE?api-version=2021-05 HTTP/1.1\r\nContent-Type: application/atom+xml\r\n?BODY" + atom,
		"PUT /new-QUEUE?api-version=2021-05 HTTP/1.1\r\nIf-Match: *\r\nContent-Type: application/atom+xml\r\n?BODY" + atom,
		"DELETE /new-QUEUE?api-version=2021-05 HTTP/1.1\r\n",
		"DELETE /new-QUEUE?api-version=2021-05 HTTP/1.1\r\n",
		"GET /health?api-version=2021-05 HTTP/1.1\r\n",
	}
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t, func(s *setting) { s.queues = append(s.queues, "direct", "behind") })
		direct := func(ctx context.Context) (net.Conn, error) { return sc.ns.Net.Dial(ctx, namespaceName) }
		send := func(queue string) {
			for _, m := range []string{"one", "two", "three"} {
				r := "POST /" + queue + "/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\norderId: 7\r\nOTHER: \"x\"\r\nBrokerProperties: {\"MessageId\":\"" + m + "\"}\r\nContent-Length: 4\r\n\r\nbody"
				exchange(t, direct, r)
			}
		}
		send("direct")
		send("behind")
		for _, request := range requests {
			answers := map[string][]string{}
			for queue, dial := range map[string]func(context.Context) (net.Conn, error){"direct": direct, "behind": sc.dial} {
				head, rest, _ := strings.Cut(request, "\r\n?")
				head = strings.TrimSuffix(strings.ReplaceAll(head, "QUEUE", queue), "\r\n") + "\r\nHost: " + namespaceName + "\r\nConnection: close\r\n"
				kind, body, _ := strings.Cut(rest, "<")
				switch kind {
				case "CHUNKED":
					head += "\r\n0\r\n\r\n"
				case "BODY":
					body = "<" + body
					head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
				default:
					head += "\r\n"
				}
				answer := exchange(t, dial, head)
				for i := range answer {
					answer[i] = strings.NewReplacer("direct", "QUEUE", "behind", "QUEUE").Replace(answer[i])
				}
				answers[queue] = answer
			}
			if diff := cmp.Diff(answers["direct"], answers["behind"]); diff != "" {
				t.Errorf("%q (-direct +behind the endpoint):\n%s", request, diff)
			}
		}
	})
}
