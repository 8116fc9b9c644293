// SPDX-License-Identifier: Apache-2.0

package amqp

// DefaultPriority is the priority of a message that states none.
const DefaultPriority = 4

// Header is the header section of a message (part 3 section 2.1).
type Header struct {
	Durable       bool
	Priority      uint8  // absent is read as DefaultPriority; always written
	TTL           uint32 // milliseconds
	HasTTL        bool
	FirstAcquirer bool
	DeliveryCount uint32 // always written: .NET clients fail on an absent one
}

// HeaderTTL is the place of the TTL in Message.Header, for ListField.
const HeaderTTL = 2

// DecodeHeader decodes Message.Header. A nil raw gives the defaults of an absent header.
func DecodeHeader(raw Raw) (Header, error) {
	h := Header{Priority: DefaultPriority}
	if raw == nil {
		return h, nil
	}
	r := NewReader(raw)
	f := fieldList(&r, "header")
	h.Durable = f.bool()
	if f.has() {
		h.Priority = f.Ubyte()
	}
	h.TTL, h.HasTTL = f.optionalUint()
	h.FirstAcquirer = f.bool()
	h.DeliveryCount = f.uint(0)
	return h, f.done(&r)
}

// Append appends the header section, descriptor included.
func (h Header) Append(dst []byte) []byte {
	return h.appendList(AppendDescriptor(dst, CodeHeader))
}

// Raw returns the encoded list without a descriptor, for Message.Header.
func (h Header) Raw() Raw { return h.appendList(nil) }

func (h Header) appendList(dst []byte) []byte {
	dst, start := BeginList(dst)
	dst = AppendBool(dst, h.Durable)
	dst = AppendUbyte(dst, h.Priority)
	dst = appendOptionalUint(dst, h.TTL, h.HasTTL)
	dst = AppendBool(dst, h.FirstAcquirer)
	dst = AppendUint(dst, h.DeliveryCount)
	return EndList(dst, start, 5)
}
