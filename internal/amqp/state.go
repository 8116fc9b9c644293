// SPDX-License-Identifier: Apache-2.0

package amqp

import "bytes"

// A DeliveryState is what one end of a link states about a delivery: one of Accepted, Released,
// *Received, *Rejected, *Modified, *Declared, *TransactionalState. Those without fields are
// values, so that the common ones cost no allocation.
type DeliveryState interface {
	Performative
	deliveryState()
}

type (
	// Received states how much of a delivery has arrived (part 3 section 4.1).
	Received struct {
		SectionNumber uint32
		SectionOffset uint64 // bytes
	}

	// Accepted is the outcome of a message that was processed (part 3 section 4.2).
	Accepted struct{}

	// Rejected is the outcome of a message that is invalid (part 3 section 4.3).
	Rejected struct{ Error *Error }

	// Released is the outcome of a message given back untouched (part 3 section 4.4).
	Released struct{}

	// Modified is the outcome of a message given back with changes (part 3 section 4.5).
	Modified struct {
		DeliveryFailed     bool
		UndeliverableHere  bool
		MessageAnnotations Map
	}

	// Declared is the outcome of a Declare (part 4 section 5.5).
	Declared struct{ TxnID []byte }

	// TransactionalState ties a delivery or an outcome to a transaction (part 4 section 5.6).
	TransactionalState struct {
		TxnID   []byte
		Outcome DeliveryState // nil = absent
	}
)

func (Accepted) deliveryState()            {}
func (Released) deliveryState()            {}
func (*Received) deliveryState()           {}
func (*Rejected) deliveryState()           {}
func (*Modified) deliveryState()           {}
func (*Declared) deliveryState()           {}
func (*TransactionalState) deliveryState() {}

// Append appends the encoded outcome.
func (Accepted) Append(dst []byte) []byte {
	return append(AppendDescriptor(dst, CodeAccepted), codeList0)
}

// Append appends the encoded outcome.
func (Released) Append(dst []byte) []byte {
	return append(AppendDescriptor(dst, CodeReleased), codeList0)
}

// Append appends the encoded state.
func (s *Received) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeReceived)
	dst = AppendUint(dst, s.SectionNumber)
	dst = AppendUlong(dst, s.SectionOffset)
	return EndList(dst, start, 2)
}

// Append appends the encoded outcome.
func (s *Rejected) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeRejected)
	return EndList(appendError(dst, s.Error), start, 1)
}

// Append appends the encoded outcome.
func (s *Modified) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeModified)
	dst = AppendBool(dst, s.DeliveryFailed)
	dst = AppendBool(dst, s.UndeliverableHere)
	dst = appendOptionalMap(dst, s.MessageAnnotations)
	return EndList(dst, start, 3)
}

// Append appends the encoded outcome.
func (s *Declared) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDeclared)
	return EndList(AppendBinary(dst, s.TxnID), start, 1)
}

// Append appends the encoded state.
func (s *TransactionalState) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeTransactionalState)
	dst = AppendBinary(dst, s.TxnID)
	dst = appendState(dst, s.Outcome)
	return EndList(dst, start, 2)
}

// appendState calls the methods by their types rather than through the interface, which would move
// dst to the heap.
func appendState(dst []byte, s DeliveryState) []byte {
	switch s := s.(type) {
	case Accepted:
		return s.Append(dst)
	case Released:
		return s.Append(dst)
	case *Received:
		return s.Append(dst)
	case *Rejected:
		return s.Append(dst)
	case *Modified:
		return s.Append(dst)
	case *Declared:
		return s.Append(dst)
	case *TransactionalState:
		return s.Append(dst)
	}
	return AppendNull(dst)
}

// DecodeState consumes a delivery state. It returns nil for a null, and when r has an error.
func DecodeState(r *Reader) DeliveryState { return decodeState(r, false) }

func decodeState(r *Reader, inTransaction bool) DeliveryState {
	if r.Null() {
		return nil
	}
	code := r.Descriptor()
	if r.err != nil {
		return nil
	}
	if inTransaction && (code < CodeAccepted || code > CodeModified) {
		r.failf("descriptor 0x%02x is not an outcome that a transaction can hold", code)
		return nil
	}
	var s DeliveryState
	switch code {
	case CodeAccepted:
		r.List()
		s = Accepted{}
	case CodeReleased:
		r.List()
		s = Released{}
	case CodeReceived:
		s = decodeReceived(r)
	case CodeRejected:
		f := fieldList(r, "rejected")
		s = &Rejected{Error: f.error()}
		r.Fail(f.err)
	case CodeModified:
		s = decodeModified(r)
	case CodeDeclared:
		f := fieldList(r, "declared")
		s = &Declared{TxnID: f.txnID()}
		r.Fail(f.err)
	case CodeTransactionalState:
		s = decodeTransactional(r)
	default:
		r.failf("descriptor 0x%02x is not a delivery state", code)
	}
	if r.err != nil {
		return nil
	}
	return s
}

func decodeReceived(r *Reader) *Received {
	f := fieldList(r, "received")
	s := &Received{SectionNumber: f.mustUint("section-number")}
	if f.must("section-offset") {
		s.SectionOffset = f.Ulong()
	}
	r.Fail(f.err)
	return s
}

func decodeModified(r *Reader) *Modified {
	f := fieldList(r, "modified")
	s := &Modified{DeliveryFailed: f.bool(), UndeliverableHere: f.bool(), MessageAnnotations: f.pairs()}
	r.Fail(f.err)
	return s
}

func decodeTransactional(r *Reader) *TransactionalState {
	f := fieldList(r, "transactional-state")
	s := &TransactionalState{TxnID: f.txnID()}
	if f.has() {
		s.Outcome = decodeState(&f.Reader, true)
	}
	r.Fail(f.err)
	return s
}

func (f *fields) txnID() []byte {
	if !f.must("txn-id") {
		return nil
	}
	return bytes.Clone(f.Binary())
}
