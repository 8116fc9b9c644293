// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"net/http"
	"strconv"
)

// A part is where in the stream of requests a splitter stands.
type part uint8

const (
	inHead      part = iota // or between two requests, when nothing of the next one has come
	inBody                  // of known length
	inChunkSize             // the line before a chunk, or before the trailer
	inChunk                 // its bytes and the line break behind them
	inTrailer
	// lost is for good: where one request ends is not certain, so nothing is known of those
	// behind it.
	lost
)

const (
	// maxChunkLine bounds the line before a chunk and a line of a trailer, as net/http does.
	maxChunkLine = 4096
	// keptHead is how large a buffer an idle connection keeps.
	keptHead = 4096
)

// A splitter follows the bytes of a client on one connection of HTTP/1 from request to request. It
// keeps the head of the latest: its first line and its fields, as they were written.
//
// Its framing (RFC 9112, section 6) is stricter than that of net/http, which reads the same
// bytes after it. What net/http refuses ends the connection there; what net/http is lenient
// with makes the splitter lost here. So while it is not lost, both agree where a request
// ends.
type splitter struct {
	maxHead int // bytes of a head that are kept; a longer one is as good as none

	part part
	head []byte // of the latest request whose head is complete; empty = unknown
	left uint64 // bytes of the body or the chunk that are still to come

	// next is what has come of the head of the next request. Behind a head it holds the
	// line of the chunked coding that is being read.
	next []byte
	line int // where in next the line begins that is being read
}

// follow takes the next bytes of the stream and returns how many of them belong to the
// request that they begin in or continue: it stops behind its last byte.
func (s *splitter) follow(b []byte) (n int) {
	for n < len(b) {
		ended := false
		switch s.part {
		case lost:
			return len(b)
		case inBody, inChunk:
			k := min(s.left, uint64(len(b)-n))
			s.left -= k
			n += int(k)
			if s.left > 0 {
				continue
			}
			if ended = s.part == inBody; ended {
				s.part = inHead
			} else {
				s.part = inChunkSize
			}
		default:
			var k int
			k, ended = s.followLine(b[n:])
			n += k
		}
		if ended {
			return n
		}
	}
	return n
}

// followLine takes bytes up to the end of the line that they begin in. ended means that
// the request ends with that line.
func (s *splitter) followLine(b []byte) (n int, ended bool) {
	if s.part == inHead && len(s.next) == 0 {
		// Empty lines before a request. Where net/http does not bear with them it hangs up.
		n = len(b) - len(bytes.TrimLeft(b, "\r\n"))
		b = b[n:]
	}
	limit := s.maxHead
	if s.part != inHead {
		limit = maxChunkLine
	}
	end := bytes.IndexByte(b, '\n') + 1
	whole := end > 0
	if !whole {
		end = len(b)
	}
	if len(s.next)+end > limit {
		s.lose()
		return n + end, false
	}
	s.next = append(s.next, b[:end]...)
	if !whole {
		return n + end, false
	}
	return n + end, s.endLine()
}

// endLine looks at the line that is complete now.
func (s *splitter) endLine() (ended bool) {
	line := s.next[s.line:]
	if s.part == inHead {
		s.line = len(s.next)
		return isBreak(line) && s.endHead()
	}
	s.next = s.next[:0]
	line, ok := bytes.CutSuffix(line, crlf)
	switch {
	case !ok:
		s.lose()
	case s.part == inChunkSize:
		s.beginChunk(line)
	case len(line) == 0: // behind the trailer
		s.part = inHead
		return true
	}
	return false
}

// isBreak reports whether a line is empty. In a head, net/http takes a line feed alone
// for the end of a line.
func isBreak(line []byte) bool {
	return len(line) == 1 || len(line) == 2 && line[0] == '\r'
}

// endHead makes the head that is complete now the latest, and finds out how the body is
// framed.
func (s *splitter) endHead() (ended bool) {
	s.head, s.next, s.line = s.next, emptied(s.head), 0
	framing, length, ok := bodyOf(s.head)
	switch {
	case !ok:
		s.lose()
	case framing == inBody && length == 0:
		return true
	default:
		s.part, s.left = framing, length
	}
	return false
}

func (s *splitter) beginChunk(line []byte) {
	size, _, _ := bytes.Cut(line, semicolon)
	n, err := strconv.ParseUint(string(bytes.TrimRight(size, " \t")), 16, 62)
	switch {
	case err != nil:
		s.lose()
	case n == 0:
		s.part = inTrailer
	default:
		s.part, s.left = inChunk, n+uint64(len(crlf))
	}
}

// forget drops the latest head: its request is done with.
func (s *splitter) forget() { s.head = emptied(s.head) }

// emptied is a buffer to be used again, unless it is large.
func emptied(b []byte) []byte {
	if cap(b) > keptHead {
		return nil
	}
	return b[:0]
}

// lose gives up for the rest of the connection.
func (s *splitter) lose() { *s = splitter{part: lost} }

var (
	crlf             = []byte("\r\n")
	lineFeed         = []byte("\n")
	colon            = []byte(":")
	semicolon        = []byte(";")
	version10        = []byte(" HTTP/1.0")
	version11        = []byte(" HTTP/1.1")
	contentLength    = []byte("Content-Length")
	transferEncoding = []byte("Transfer-Encoding")
	codingChunked    = []byte("chunked")
)

// bodyOf finds out how the body behind a head is framed: inBody with its length, or
// inChunkSize. ok is false unless that is stated in the plainest way.
func bodyOf(head []byte) (framing part, length uint64, ok bool) {
	first, fields, _ := bytes.Cut(head, lineFeed)
	first = bytes.TrimRight(first, "\r")
	mayChunk := bytes.HasSuffix(first, version11)
	if !mayChunk && !bytes.HasSuffix(first, version10) {
		return inHead, 0, false
	}
	framing = inBody
	stated := false
	for line := range bytes.Lines(fields) {
		if isBreak(line) {
			break
		}
		name, value, ok := field(line)
		hasLength, hasCoding := bytes.EqualFold(name, contentLength), bytes.EqualFold(name, transferEncoding)
		switch {
		case !ok:
			return inHead, 0, false
		case !hasLength && !hasCoding:
			continue
		case stated: // twice, or both: what smugglers of requests do
			return inHead, 0, false
		}
		stated = true
		if hasCoding {
			framing = inChunkSize
			if !mayChunk || !bytes.EqualFold(value, codingChunked) {
				return inHead, 0, false
			}
			continue
		}
		var err error
		if length, err = strconv.ParseUint(string(value), 10, 62); err != nil {
			return inHead, 0, false
		}
	}
	return framing, length, true
}

// field reads one line of a head. ok is false when it is none that stands for itself:
// folded lines are obsolete (RFC 9112, section 5.2).
func field(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, colon)
	if !ok || len(name) == 0 || name[0] == ' ' || name[0] == '\t' {
		return nil, nil, false
	}
	return name, bytes.Trim(value, " \t\r\n"), true
}

// forHTTP are the headers that net/http looks for, or writes by itself, under its own spelling. No
// property has such a name.
var forHTTP = canonical(`
	Connection Content-Encoding Content-Length Content-Type Date Expect Host Trailer Transfer-Encoding User-Agent`)

// RequestHeader is the header of r with the names as they were sent, but for those that net/http
// looks for. It is r.Header where r did not come through Serve.
func RequestHeader(r *http.Request) http.Header {
	c, _ := r.Context().Value(spelledConnKey{}).(*spelledConn)
	if c == nil {
		return r.Header
	}
	c.mu.Lock()
	head := bytes.Clone(c.requests.head)
	c.mu.Unlock()
	if h, ok := spelledHeader(head, r.Header); ok {
		return h
	}
	return r.Header
}

// spelledHeader is known with the names that they have in a head. ok is false when the head is not
// that of known.
func spelledHeader(head []byte, known http.Header) (h http.Header, ok bool) {
	_, fields, ok := bytes.Cut(head, lineFeed)
	if !ok {
		return nil, false
	}
	h = make(http.Header, len(known))
	next := map[string]int{} // how many values of a known header have been met
	for line := range bytes.Lines(fields) {
		if isBreak(line) {
			break
		}
		name, value, ok := field(line)
		if !ok {
			return nil, false
		}
		header := http.CanonicalHeaderKey(string(name))
		values, i := known[header], next[header]
		if i >= len(values) {
			continue // net/http has taken it out
		}
		if values[i] != string(value) {
			return nil, false
		}
		next[header]++
		key := string(name)
		if forHTTP[header] {
			key = header
		}
		h[key] = append(h[key], values[i])
	}
	for header, values := range known {
		if next[header] != len(values) {
			return nil, false
		}
	}
	return h, true
}
