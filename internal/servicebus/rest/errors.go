// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrBadRequest says that the request is not one of the API, or breaks a rule of Service Bus. A
	// RequestError is one.
	ErrBadRequest = errors.New("bad request")
	// ErrTooLarge says that a message, or a batch, is larger than may be.
	ErrTooLarge = errors.New("message is too large")
)

// A RequestError says in one sentence what is wrong with a request. It is ErrBadRequest.
type RequestError struct{ Sentence string }

func (e *RequestError) Error() string { return e.Sentence }

// Is makes it ErrBadRequest.
func (e *RequestError) Is(target error) bool { return target == ErrBadRequest }

// BadRequest makes a RequestError.
func BadRequest(format string, args ...any) error {
	return &RequestError{fmt.Sprintf(format, args...)}
}

// Quoted shows a value from outside in a sentence, cut to a bearable length.
func Quoted(v any) string {
	s := []rune(fmt.Sprint(v))
	if t, ok := v.(time.Time); ok {
		s = []rune(t.Format(time.RFC3339Nano))
	}
	if len(s) > 64 {
		s = append(s[:64], '…')
	}
	return fmt.Sprintf("%q", string(s))
}

// ErrorContentType is the Content-Type of ErrorBody, and of answers without a body.
const ErrorContentType = "application/xml; charset=utf-8"

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#xD;")

// ErrorBody is the body of an error answer. The sentence may hold what a client sent, or
// the broker's own words: what XML cannot hold is left out.
func ErrorBody(status int, sentence string) string {
	sentence = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\r' && r != '\n' || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, sentence)
	return "<Error><Code>" + strconv.Itoa(status) + "</Code><Detail>" + xmlText.Replace(sentence) + "</Detail></Error>"
}

// InvalidVerb refuses a method for a path where nothing can be asked for with it.
func InvalidVerb(method string) error {
	return BadRequest("The specified HTTP verb (%.20s) is not valid. To know more visit https://aka.ms/sbResourceMgrExceptions. .", method)
}

// HeaderStrictTransport is a header that the service sets on all answers but some lists.
const HeaderStrictTransport = "Strict-Transport-Security"

// Identify sets the headers that the service sets on its answers, whatever they say.
func Identify(h http.Header) {
	h.Set("Server", "Microsoft-HTTPAPI/2.0")
	h.Set(HeaderStrictTransport, "max-age=31536000")
}

// Refuse answers r with an error as the service writes it. The sentence gets the service's tail,
// by which people find an error in its logs. retryAfter is in seconds, 0 = a retry does not help.
func Refuse(w http.ResponseWriter, r *http.Request, status, retryAfter int, sentence string) {
	h := w.Header()
	h.Set("Content-Type", ErrorContentType)
	h.Set("Transfer-Encoding", "chunked")
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(status)
	detail := fmt.Sprintf("%s. TrackingId:%s_G0, SystemTracker:%.260s:%.300s, Timestamp:%s", strings.TrimSuffix(strings.TrimRight(sentence, " "), "."),
		NewID(), r.Host, strings.Trim(r.URL.Path, "/"), time.Now().UTC().Format("2006-01-02T15:04:05"))
	_, _ = io.WriteString(w, ErrorBody(status, detail)) // the client may be gone
}
