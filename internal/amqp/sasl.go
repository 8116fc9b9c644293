// SPDX-License-Identifier: Apache-2.0

package amqp

// The codes of a SASLOutcome.
const (
	SASLOK      uint8 = 0
	SASLAuth    uint8 = 1 // wrong credentials
	SASLSys     uint8 = 2 // system error
	SASLSysPerm uint8 = 3 // permanent system error
	SASLSysTemp uint8 = 4 // transient system error
)

type (
	// SASLMechanisms lists what the server offers (part 5 section 3.3.1).
	SASLMechanisms struct{ Mechanisms []Symbol }

	// SASLInit chooses a mechanism (part 5 section 3.3.2).
	SASLInit struct {
		Mechanism       Symbol
		InitialResponse []byte // nil = absent
		Hostname        string // empty = absent
	}

	// SASLOutcome ends the exchange (part 5 section 3.3.5).
	SASLOutcome struct {
		Code           uint8
		AdditionalData []byte // nil = absent
	}
)

// Append appends the encoded performative.
func (m *SASLMechanisms) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeSASLMechanisms)
	return EndList(AppendSymbols(dst, m.Mechanisms...), start, 1)
}

// Decode reads the performative.
func (m *SASLMechanisms) Decode(r *Reader) error {
	f := composite(r, CodeSASLMechanisms, "sasl-mechanisms")
	m.Mechanisms = nil
	if f.must("sasl-server-mechanisms") {
		m.Mechanisms = f.Symbols()
	}
	return f.done(r)
}

// Append appends the encoded performative.
func (i *SASLInit) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeSASLInit)
	dst = AppendSymbol(dst, i.Mechanism)
	dst = appendOptionalBinary(dst, i.InitialResponse)
	dst = appendOptional(dst, AppendString, i.Hostname, i.Hostname != "")
	return EndList(dst, start, 3)
}

// Decode reads the performative.
func (i *SASLInit) Decode(r *Reader) error {
	f := composite(r, CodeSASLInit, "sasl-init")
	*i = SASLInit{}
	if f.must("mechanism") {
		i.Mechanism = f.Symbol()
	}
	i.InitialResponse = f.binary()
	i.Hostname = f.string()
	return f.done(r)
}

// Append appends the encoded performative.
func (o *SASLOutcome) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeSASLOutcome)
	dst = AppendUbyte(dst, o.Code)
	dst = appendOptionalBinary(dst, o.AdditionalData)
	return EndList(dst, start, 2)
}

// Decode reads the performative.
func (o *SASLOutcome) Decode(r *Reader) error {
	f := composite(r, CodeSASLOutcome, "sasl-outcome")
	*o = SASLOutcome{}
	if f.must("code") {
		o.Code = f.Ubyte()
	}
	o.AdditionalData = f.binary()
	return f.done(r)
}
