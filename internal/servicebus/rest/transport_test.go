// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answering is a server that answers each request with the next of the texts, and tells what it
// was asked.
func answering(t *testing.T, answers ...string) (tr *Transport, asked chan string) {
	t.Helper()
	asked = make(chan string, len(answers))
	tr = NewTransport(func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r := bufio.NewReader(server)
			for len(answers) > 0 {
				var head strings.Builder
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = r.ReadString('\n'); err != nil {
						return
					}
					head.WriteString(line)
				}
				asked <- head.String()
				answer := answers[0]
				answers = answers[1:]
				for chunk := range slices.Chunk([]byte(answer), 7) {
					if _, err := server.Write(chunk); err != nil {
						return
					}
				}
			}
		}()
		return client, nil
	})
	t.Cleanup(tr.CloseIdleConnections)
	return tr, asked
}

func TestNamesOfHeadersAreKeptBothWays(t *testing.T) {
	tr, asked := answering(t,
		"HTTP/1.1 100 Continue\r\nearly: 1\r\n\r\nHTTP/1.1 201 Created\r\norderId: 7\r\nORDERID: 8\r\nBrokerProperties: {}\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nhi",
		"HTTP/1.1 204 No Content\r\nsecond: x\r\n\r\n")
	for _, want := range []http.Header{
		{"orderId": {"7"}, "ORDERID": {"8"}, "BrokerProperties": {"{}"}, "Content-Length": {"2"}, "Content-Type": {"text/plain"}},
		{"second": {"x"}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://namespace/q/messages/head", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["myProperty"] = []string{"1"}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, resp.Header); diff != "" {
			t.Errorf("header of the answer (-want +got):\n%s", diff)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if head := <-asked; !strings.Contains(head, "\r\nmyProperty: 1\r\n") {
			t.Errorf("the request was %q, want myProperty as it was spelled", head)
		}
	}
}

// The values are those that net/http has read, whatever stands in the head.
func FuzzSpelledHeader(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\na: 1\r\nA: 2\r\n\r\n", "HTTP/1.1 200 OK\r\na: 1\r\n b\r\n\r\n", "HTTP/1.1 200 OK\nContent-length: 3\nx:\t y \n\n", "x", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(head))), nil)
		if err != nil {
			return
		}
		h, ok := spelledHeader(head, resp.Header)
		if !ok {
			return
		}
		again := http.Header{}
		for name, values := range h {
			again[http.CanonicalHeaderKey(name)] = append(again[http.CanonicalHeaderKey(name)], values...)
		}
		for name, values := range again {
			want := slices.Clone(resp.Header[name])
			slices.Sort(want)
			slices.Sort(values)
			if !slices.Equal(values, want) {
				t.Errorf("%s = %q, want %q", name, values, want)
			}
		}
		if len(again) != len(resp.Header) {
			t.Errorf("%d headers, want %d", len(again), len(resp.Header))
		}
	})
}
