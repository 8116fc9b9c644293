// SPDX-License-Identifier: Apache-2.0

package amqp

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
