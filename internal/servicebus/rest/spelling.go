// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"net/http"
)

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
