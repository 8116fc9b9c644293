// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// onceOnly are the headers, beside those that carry properties, that somebody acts on: of two
// values, one reader could take the first and another the last.
var onceOnly = canonical(`
	Authorization BrokerProperties Content-Encoding Content-Type If-Match ServiceBusAuthorization
	ServiceBusDlqSupplementaryAuthorization ServiceBusSupplementaryAuthorization`)

// CheckOnce refuses a request that repeats a header, in any case, that carries a property or that
// somebody acts on. It also refuses a repeated parameter of the query, which is the part of a URL
// behind the question mark. Errors: ErrBadRequest.
func CheckOnce(h http.Header, query string) error {
	for header, values := range h {
		if len(values) > 1 && (onceOnly[header] || isProperty(header)) {
			return BadRequest("The HTTP header %s is stated %d times.", Quoted(header), len(values))
		}
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return BadRequest("The query of the URL cannot be read: %s.", err)
	}
	stated := make(map[string]bool, len(parameters))
	for name, values := range parameters {
		folded := strings.ToLower(name)
		if len(values) > 1 || stated[folded] {
			return BadRequest("The parameter %s is stated more than once.", Quoted(name))
		}
		stated[folded] = true
	}
	return nil
}

// checkKeysOnce refuses JSON in which an object states a key twice. Keys are compared without case,
// because readers of JSON differ in whether they heed it, but for those of UserProperties, which
// are the names of properties. Text that is no JSON is left to the decoder.
func checkKeysOnce(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := keysOnce(d, strings.ToLower, 0); !errors.Is(err, errNoJSON) {
		return err
	}
	return nil
}

// maxNesting bounds how deep objects and arrays are checked.
const maxNesting = 64

var errNoJSON = errors.New("sbrest: no JSON")

// keysOnce reads one value.
func keysOnce(d *json.Decoder, fold func(string) string, depth int) error {
	t, err := d.Token()
	if err != nil {
		return errNoJSON
	}
	open, isOpen := t.(json.Delim)
	if !isOpen {
		return nil
	}
	if depth == maxNesting {
		return BadRequest("The JSON is nested more than %d deep.", maxNesting)
	}
	seen := map[string]bool{}
	for d.More() {
		within := fold
		if open == '{' {
			key, err := d.Token()
			text, isText := key.(string)
			if err != nil || !isText {
				return errNoJSON
			}
			if seen[fold(text)] {
				return BadRequest("The JSON states %s more than once.", Quoted(text))
			}
			seen[fold(text)] = true
			if strings.EqualFold(text, "UserProperties") {
				within = func(s string) string { return s }
			}
		}
		if err := keysOnce(d, within, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // what closes it
		return errNoJSON
	}
	return nil
}
