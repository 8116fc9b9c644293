// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"errors"
	"fmt"
)

var (
	// ErrMalformed is wrapped by every error about the inside of a frame. Such errors are a truncated
	// value, a value of the wrong type, a missing mandatory field, a count or a depth beyond the
	// bounds.
	ErrMalformed = errors.New("amqp: malformed")

	// ErrFraming is wrapped by every error about a frame itself: its size, its data offset, its type.
	ErrFraming = errors.New("amqp: bad frame")

	// ErrUnencodable is wrapped by the errors of AppendValue: a Go type that is no AMQP value, an
	// Array of several types, a value nested beyond MaxDepth.
	ErrUnencodable = errors.New("amqp: cannot be encoded")
)

// The error conditions of AMQP 1.0, part 2 sections 8.15 to 8.18 and part 4 section 5.8.
const (
	ErrCondInternalError         Symbol = "amqp:internal-error"
	ErrCondNotFound              Symbol = "amqp:not-found"
	ErrCondUnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	ErrCondDecodeError           Symbol = "amqp:decode-error"
	ErrCondResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	ErrCondNotAllowed            Symbol = "amqp:not-allowed"
	ErrCondInvalidField          Symbol = "amqp:invalid-field"
	ErrCondNotImplemented        Symbol = "amqp:not-implemented"
	ErrCondResourceLocked        Symbol = "amqp:resource-locked"
	ErrCondPreconditionFailed    Symbol = "amqp:precondition-failed"
	ErrCondResourceDeleted       Symbol = "amqp:resource-deleted"
	ErrCondIllegalState          Symbol = "amqp:illegal-state"
	ErrCondFrameSizeTooSmall     Symbol = "amqp:frame-size-too-small"

	ErrCondConnectionForced       Symbol = "amqp:connection:forced"
	ErrCondConnectionFramingError Symbol = "amqp:connection:framing-error"
	ErrCondConnectionRedirect     Symbol = "amqp:connection:redirect"

	ErrCondSessionWindowViolation  Symbol = "amqp:session:window-violation"
	ErrCondSessionErrantLink       Symbol = "amqp:session:errant-link"
	ErrCondSessionHandleInUse      Symbol = "amqp:session:handle-in-use"
	ErrCondSessionUnattachedHandle Symbol = "amqp:session:unattached-handle"

	ErrCondLinkDetachForced          Symbol = "amqp:link:detach-forced"
	ErrCondLinkTransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
	ErrCondLinkMessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	ErrCondLinkRedirect              Symbol = "amqp:link:redirect"
	ErrCondLinkStolen                Symbol = "amqp:link:stolen"

	ErrCondTransactionUnknownID Symbol = "amqp:transaction:unknown-id"
	ErrCondTransactionRollback  Symbol = "amqp:transaction:rollback"
	ErrCondTransactionTimeout   Symbol = "amqp:transaction:timeout"
)

// Error is the error composite of AMQP (part 2 section 8.14), and an error in Go.
type Error struct {
	Condition   Symbol // mandatory: when empty, amqp:internal-error is written
	Description string
	Info        Map
}

// Error returns the condition and the description.
func (e *Error) Error() string {
	if e.Description == "" {
		return string(e.Condition)
	}
	return string(e.Condition) + ": " + e.Description
}

// Errorf returns an Error with a formatted description.
func Errorf(condition Symbol, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// AsError returns the Error that closes a connection after err: err itself if it is or wraps an
// *Error, else framing-error, decode-error or internal-error by what err wraps. It returns nil for
// nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	condition := ErrCondInternalError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrFraming):
		condition = ErrCondConnectionFramingError
	case errors.Is(err, ErrMalformed):
		condition = ErrCondDecodeError
	}
	return &Error{Condition: condition, Description: err.Error()}
}

// Append appends the encoded error.
func (e *Error) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeError)
	if e.Condition != "" {
		dst = AppendSymbol(dst, e.Condition)
	} else {
		dst = AppendSymbol(dst, ErrCondInternalError) // go-amqp ends the connection if an error has none
	}
	dst = appendOptional(dst, AppendString, e.Description, e.Description != "")
	dst = appendOptionalMap(dst, e.Info)
	return EndList(dst, start, 3)
}

// Decode reads an error. An error without a condition is accepted: the peer reports a failure, and
// that is no reason to end the connection.
func (e *Error) Decode(r *Reader) error {
	f := composite(r, CodeError, "error")
	*e = Error{}
	e.Condition = f.kind()
	e.Description = f.string()
	e.Info = f.pairs()
	return f.done(r)
}

func appendError(dst []byte, e *Error) []byte {
	if e == nil {
		return AppendNull(dst)
	}
	return e.Append(dst)
}

// LimitExceeded returns the error for a peer that exceeds its quota; nil for nil.
func LimitExceeded(err error) *Error {
	if err == nil {
		return nil
	}
	return Errorf(ErrCondResourceLimitExceeded, "The connection is closed: %v.", err)
}

// MaxShortDescription bounds the description of an error that Shortened has
// shortened, in bytes.
const MaxShortDescription = 300

// Shortened returns p with a short error, which fits into the smallest frame, or
// nil if p has no error.
func Shortened(p Performative) Performative {
	switch p := p.(type) {
	case *Detach:
		if p.Error != nil {
			return &Detach{Handle: p.Handle, Closed: p.Closed, Error: shortError(p.Error)}
		}
	case *End:
		if p.Error != nil {
			return &End{Error: shortError(p.Error)}
		}
	case *Close:
		if p.Error != nil {
			return &Close{Error: shortError(p.Error)}
		}
	case *Disposition:
		if st, ok := p.State.(*Rejected); ok && st.Error != nil {
			d := *p
			d.State = &Rejected{Error: shortError(st.Error)}
			return &d
		}
	}
	return nil
}

func shortError(e *Error) *Error {
	short := &Error{Condition: e.Condition, Description: e.Description}
	if len(short.Condition) > MaxShortDescription/3 {
		short.Condition = ErrCondInternalError
	}
	if len(short.Description) > MaxShortDescription {
		cut := MaxShortDescription
		for cut > 0 && short.Description[cut]&0xC0 == 0x80 {
			cut-- // not within a rune
		}
		short.Description = short.Description[:cut]
	}
	return short
}
