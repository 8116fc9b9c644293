// SPDX-License-Identifier: Apache-2.0

package amqp

import "fmt"

// decodable is a performative that can be read. Decode expects the descriptor first, accepts short
// field lists, and leaves the receiver in no particular state when it fails. The decoded value
// shares no memory with the input, except the DeliveryTag of a Transfer.
type decodable interface {
	Performative
	Decode(r *Reader) error
}

// DecodePerformative decodes the body of a frame, AMQP or SASL. The payload is what follows the
// performative and aliases body.
func DecodePerformative(body []byte) (p Performative, payload []byte, err error) {
	var d Decoder
	return d.Decode(body)
}

// Decoder decodes the three most frequent performatives, Transfer, Disposition and Flow, into
// structs of its own. The zero value is ready. It is not safe for concurrent use.
type Decoder struct {
	transfer    Transfer
	disposition Disposition
	flow        Flow
	reader      Reader // here, because a call through an interface moves its arguments to the heap
}

// Decode is DecodePerformative, but a returned *Transfer, *Disposition or *Flow is valid only until
// the next call.
func (d *Decoder) Decode(body []byte) (p Performative, payload []byte, err error) {
	r := &d.reader
	*r = NewReader(body)
	code := r.PeekDescriptor()
	v := d.place(code)
	if v == nil {
		r.Descriptor() // gives the better error when there is none
		r.Fail(fmt.Errorf("%w: descriptor 0x%02x is not a performative", ErrMalformed, code))
		return nil, nil, r.err
	}
	if err := v.Decode(r); err != nil {
		return nil, nil, err
	}
	return v, r.Rest(), nil
}

// place returns where to decode the performative with this descriptor, nil if there is none.
func (d *Decoder) place(code uint64) decodable {
	switch code {
	case CodeTransfer:
		return &d.transfer
	case CodeDisposition:
		return &d.disposition
	case CodeFlow:
		return &d.flow
	case CodeOpen:
		return new(Open)
	case CodeBegin:
		return new(Begin)
	case CodeAttach:
		return new(Attach)
	case CodeDetach:
		return new(Detach)
	case CodeEnd:
		return new(End)
	case CodeClose:
		return new(Close)
	case CodeSASLMechanisms:
		return new(SASLMechanisms)
	case CodeSASLInit:
		return new(SASLInit)
	case CodeSASLOutcome:
		return new(SASLOutcome)
	}
	return nil
}
