// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"overdue/internal/testing/testseed"
)

// A heard request is one as net/http reads it: where in the stream its head begins and
// ends, and where its body ends.
type heard struct{ start, head, end int }

// listen reads requests as the server of net/http does, until it would hang up. The last
// one has no end when its body is broken or not complete.
func listen(stream []byte) (requests []heard) {
	src := bytes.NewReader(stream)
	in := bufio.NewReader(src)
	at := func() int { return len(stream) - src.Len() - in.Buffered() }
	post := false
	for {
		if post {
			// An error that Peek meets, ReadRequest meets again.
			four, _ := in.Peek(4)
			_, _ = in.Discard(len(four) - len(bytes.TrimLeft(four, "\r\n")))
		}
		start := at()
		r, err := http.ReadRequest(in)
		if err != nil {
			return requests
		}
		requests = append(requests, heard{start: start, head: at()})
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return requests
		}
		requests[len(requests)-1].end = at()
		post = r.Method == http.MethodPost
	}
}

// checkSplit feeds a stream to a splitter in slices of any size and holds what it says
// against net/http. It reports how many requests the splitter was sure of.
func checkSplit(t *testing.T, stream []byte, slice func() int) (sure int) {
	t.Helper()
	s := splitter{maxHead: 1 << 20}
	// feed gives the splitter all bytes up to an offset. It must not take one to be the
	// last of a request before the offset.
	at := 0
	feed := func(upTo int) {
		t.Helper()
		for at < upTo && s.part != lost {
			b := stream[at:min(at+max(slice(), 1), len(stream))] // what comes does not end with a request
			n := s.follow(b)
			if n <= 0 || n > len(b) {
				t.Fatalf("follow of %d bytes = %d", len(b), n)
			}
			at += n
			if at > upTo && s.part != lost {
				t.Fatalf("at %d behind the end at %d of %q", at, upTo, stream)
			}
		}
	}
	between := func() bool { return s.part == inHead && len(s.next) == 0 }
	for i, r := range listen(stream) {
		// Byte by byte: at the end of a head the splitter need not stop.
		for at < r.head && s.part != lost {
			at += s.follow(stream[at : at+1])
			if at < r.head && at > r.start+4 && between() {
				t.Fatalf("request %d ended at %d, want its head to end at %d: %q", i, at, r.head, stream)
			}
		}
		if s.part == lost {
			return sure
		}
		if got, want := s.head, stream[r.start:r.head]; !bytes.Equal(got, bytes.TrimLeft(want, "\r\n")) {
			t.Fatalf("head of request %d is %q, want %q", i, got, want)
		}
		if r.end == 0 {
			return sure
		}
		feed(r.end)
		if s.part == lost {
			return sure
		}
		if !between() {
			t.Fatalf("request %d has not ended at %d: %q", i, r.end, stream)
		}
		sure++
	}
	return sure
}

// randomStream is some requests, one behind the other.
func randomStream(rng *rand.Rand) (stream []byte, requests int) {
	requests = 1 + rng.IntN(5)
	for i := range requests {
		stream = append(stream, randomSample(rng, i, "id").request...)
	}
	return stream, requests
}

func TestTheSplitterIsSureOfPlainRequests(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		stream, requests := randomStream(rng)
		size := 1 + rng.IntN(1<<rng.IntN(14))
		if sure := checkSplit(t, stream, func() int { return size }); sure != requests {
			t.Fatalf("sure of %d requests, want %d: %q", sure, requests, stream)
		}
	}
}

// Streams with bytes that were changed, left out or doubled: the splitter may be lost, and
// must not be wrong.
func TestTheSplitterIsNeverWrong(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"\r", "\n", " ", "\t", ":", ";", "0", "9", "f", "g", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "\r\n\r\n", "HTTP/1.0", "\x00"}
	var sure int
	for range 20000 {
		stream, _ := randomStream(rng)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(stream))
			end := min(at+rng.IntN(3), len(stream))
			stream = bytes.Join([][]byte{stream[:at], []byte(parts[rng.IntN(len(parts))]), stream[end:]}, nil)
		}
		sure += checkSplit(t, stream, func() int { return 1 + rng.IntN(100) })
	}
	if sure == 0 {
		t.Error("sure of no request, want some")
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\norderId: 1\r\n\r\nGET / HTTP/1.0\n\n"), uint8(3))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\r\nPOST / HTTP/1.1\r\nHost: h\r\n\r\n"), uint8(1))
	f.Add([]byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\na: b\r\n\r\nGET / HTTP/1.1\r\n\r\n"), uint8(200))
	f.Add([]byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\n\nc: d\r\n\r\n"), uint8(9))
	f.Add([]byte("POST / HTTP/1.1\r\nContent-Length: 1\r\n 2\r\n\r\nab"), uint8(9))
	f.Fuzz(func(t *testing.T, stream []byte, slice uint8) {
		checkSplit(t, stream, func() int { return int(slice) })
	})
}

func TestTheSplitterIsBounded(t *testing.T) {
	for name, stream := range map[string]string{
		"a head without end":       "GET / HTTP/1.1\r\na: " + strings.Repeat("x", 5000),
		"fields without end":       "GET / HTTP/1.1\r\n" + strings.Repeat("a: b\r\n", 1000),
		"a chunk line without end": "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 5000),
		"a trailer without end":    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("x", 5000),
	} {
		s := splitter{maxHead: 4096}
		for _, b := range []byte(stream) {
			s.follow([]byte{b})
			if n := cap(s.next) + cap(s.head); n > 3*4096 {
				t.Fatalf("%s: holds %d bytes", name, n)
			}
		}
		if s.part != lost || s.head != nil || s.next != nil {
			t.Errorf("%s: in part %d with %d and %d bytes, want it lost with none", name, s.part, len(s.head), len(s.next))
		}
	}
}

// An idle connection must not keep what one large head has taken.
func TestALargeHeadIsForgotten(t *testing.T) {
	s := splitter{maxHead: 1 << 20}
	request := []byte("GET / HTTP/1.1\r\na: " + strings.Repeat("x", 100000) + "\r\n\r\n")
	for range 3 {
		if n := s.follow(request); n != len(request) || len(s.head) != n {
			t.Fatalf("follow = %d with a head of %d, want %d for both", n, len(s.head), len(request))
		}
		s.forget()
		if n := cap(s.head) + cap(s.next); n > 2*keptHead {
			t.Errorf("%d bytes are kept, want at most %d", n, 2*keptHead)
		}
	}
}

func BenchmarkSplitter(b *testing.B) {
	request := []byte(strings.ReplaceAll(`POST /orders/messages HTTP/1.1
Host: localhost:5300
User-Agent: bench
Content-Length: 5
Content-Type: application/json
BrokerProperties: {"MessageId":"a","TimeToLive":90}
orderId: 7
tenantId: t

`, "\n", "\r\n") + "hello")
	s := splitter{maxHead: 1 << 16}
	b.ReportAllocs()
	b.SetBytes(int64(len(request)))
	for b.Loop() {
		if n := s.follow(request); n != len(request) {
			b.Fatalf("follow = %d, want %d", n, len(request))
		}
	}
}
