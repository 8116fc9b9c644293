// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrBadRequest: the request is not one of the API, or breaks a rule of Service Bus. A
	// RequestError is one.
	ErrBadRequest = errors.New("bad request")
	// ErrTooLarge: a message, or a batch, is larger than may be.
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

// ErrorContentType is the Content-Type of ErrorBody.
const ErrorContentType = "application/xml; charset=utf-8"

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// ErrorBody is the body of an error answer. The sentence may hold what a client sent, or
// the broker's own words: what XML cannot hold is left out.
func ErrorBody(status int, sentence string) string {
	sentence = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, sentence)
	return "<Error><Code>" + strconv.Itoa(status) + "</Code><Detail>" + xmlText.Replace(sentence) + "</Detail></Error>"
}
