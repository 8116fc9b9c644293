// SPDX-License-Identifier: Apache-2.0

package amqp

import "bytes"

// Source is the node that messages of a link come from (part 3 section 5.3).
type Source struct {
	Address    string
	HasAddress bool // distinguishes "" from an absent address
	// OtherAddress is set instead of Address when the address is not a string.
	OtherAddress          Raw
	Durable               uint32
	ExpiryPolicy          Symbol // empty = absent, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw
	DistributionMode      Symbol
	Filter                Raw
	DefaultOutcome        Raw
	Outcomes              Raw
	Capabilities          Raw
}

// Target is the node that messages of a link go to (part 3 section 5.4).
type Target struct {
	Address    string
	HasAddress bool // distinguishes "" from an absent address
	// OtherAddress is set instead of Address when the address is not a string.
	OtherAddress          Raw
	Durable               uint32
	ExpiryPolicy          Symbol // empty = absent, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw
	Capabilities          Raw
}

// Coordinator is the target of a link that controls transactions (part 4 section 5.1).
type Coordinator struct{ Capabilities Raw }

// Declare asks a coordinator for a new transaction; it is the amqp-value body of a message.
type Declare struct{ GlobalID Raw }

// Discharge asks a coordinator to end a transaction; it is the amqp-value body of a message.
type Discharge struct {
	TxnID []byte
	Fail  bool // true = roll back
}

// Append appends the encoded source.
func (s *Source) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeSource)
	dst = appendAddress(dst, s.Address, s.HasAddress, s.OtherAddress)
	dst = appendOptionalUint(dst, s.Durable, s.Durable != 0)
	dst = appendOptional(dst, AppendSymbol, s.ExpiryPolicy, s.ExpiryPolicy != "")
	dst = appendOptionalUint(dst, s.Timeout, s.Timeout != 0)
	dst = appendOptionalTrue(dst, s.Dynamic)
	dst = AppendRaw(dst, s.DynamicNodeProperties)
	dst = appendOptional(dst, AppendSymbol, s.DistributionMode, s.DistributionMode != "")
	dst = AppendRaw(dst, s.Filter)
	dst = AppendRaw(dst, s.DefaultOutcome)
	dst = AppendRaw(dst, s.Outcomes)
	dst = AppendRaw(dst, s.Capabilities)
	return EndList(dst, start, 11)
}

// Decode reads a source.
func (s *Source) Decode(r *Reader) error {
	f := composite(r, CodeSource, "source")
	*s = Source{}
	s.Address, s.HasAddress, s.OtherAddress = f.address()
	s.Durable = f.uint(0)
	s.ExpiryPolicy = f.kind()
	s.Timeout = f.uint(0)
	s.Dynamic = f.bool()
	s.DynamicNodeProperties = f.raw()
	s.DistributionMode = f.kind()
	s.Filter = f.raw()
	s.DefaultOutcome = f.raw()
	s.Outcomes = f.raw()
	s.Capabilities = f.raw()
	return f.done(r)
}

// Append appends the encoded target.
func (t *Target) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeTarget)
	dst = appendAddress(dst, t.Address, t.HasAddress, t.OtherAddress)
	dst = appendOptionalUint(dst, t.Durable, t.Durable != 0)
	dst = appendOptional(dst, AppendSymbol, t.ExpiryPolicy, t.ExpiryPolicy != "")
	dst = appendOptionalUint(dst, t.Timeout, t.Timeout != 0)
	dst = appendOptionalTrue(dst, t.Dynamic)
	dst = AppendRaw(dst, t.DynamicNodeProperties)
	dst = AppendRaw(dst, t.Capabilities)
	return EndList(dst, start, 7)
}

// Decode reads a target.
func (t *Target) Decode(r *Reader) error {
	f := composite(r, CodeTarget, "target")
	*t = Target{}
	t.Address, t.HasAddress, t.OtherAddress = f.address()
	t.Durable = f.uint(0)
	t.ExpiryPolicy = f.kind()
	t.Timeout = f.uint(0)
	t.Dynamic = f.bool()
	t.DynamicNodeProperties = f.raw()
	t.Capabilities = f.raw()
	return f.done(r)
}

// Append appends the encoded coordinator.
func (c *Coordinator) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeCoordinator)
	return EndList(AppendRaw(dst, c.Capabilities), start, 1)
}

// Decode reads a coordinator.
func (c *Coordinator) Decode(r *Reader) error {
	f := composite(r, CodeCoordinator, "coordinator")
	c.Capabilities = f.raw()
	return f.done(r)
}

// Append appends the encoded declare.
func (d *Declare) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDeclare)
	return EndList(AppendRaw(dst, d.GlobalID), start, 1)
}

// Decode reads a declare.
func (d *Declare) Decode(r *Reader) error {
	f := composite(r, CodeDeclare, "declare")
	d.GlobalID = f.raw()
	return f.done(r)
}

// Append appends the encoded discharge.
func (d *Discharge) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDischarge)
	dst = AppendBinary(dst, d.TxnID)
	dst = AppendBool(dst, d.Fail)
	return EndList(dst, start, 2)
}

// Decode reads a discharge.
func (d *Discharge) Decode(r *Reader) error {
	f := composite(r, CodeDischarge, "discharge")
	*d = Discharge{TxnID: f.txnID()}
	d.Fail = f.bool()
	return f.done(r)
}

func (f *fields) address() (address string, has bool, other Raw) {
	if !f.has() {
		return "", false, nil
	}
	if c := f.Next(); c != codeString8 && c != codeString32 {
		other := f.Raw()
		if len(other) > MaxName {
			f.failf("address of %d bytes in %s, at most %d allowed", len(other), f.name, MaxName)
		}
		return "", false, bytes.Clone(other)
	}
	return f.label(), true, nil
}

func appendAddress(dst []byte, address string, has bool, other Raw) []byte {
	if has || address != "" {
		return AppendString(dst, address)
	}
	return AppendRaw(dst, other)
}
