// SPDX-License-Identifier: Apache-2.0

package amqp

// A DeliveryState is what one end of a link says about a delivery: one of Accepted, Released,
// *Received, *Rejected, *Modified, *Declared, *TransactionalState. Those without fields are
// values, so that the common ones cost no allocation.
type DeliveryState interface {
	Performative
	deliveryState()
}

type (
	// Received says how much of a delivery has arrived (part 3 section 4.1).
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
