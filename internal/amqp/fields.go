// SPDX-License-Identifier: Apache-2.0

package amqp

import "bytes"

// fields reads the field list of a composite type, one field after the other. Fields that are null
// or beyond the end of the list are absent. More fields than the type has are ignored.
type fields struct {
	Reader
	left int
	name string // of the composite type, for errors
}

// composite consumes a described list whose descriptor has to be code.
func composite(r *Reader, code uint64, name string) fields {
	if got := r.Descriptor(); r.err == nil && got != code {
		r.failf("want %s, got descriptor 0x%02x", name, got)
	}
	return fieldList(r, name)
}

// fieldList consumes the list of a composite type whose descriptor was consumed before.
func fieldList(r *Reader, name string) fields {
	sub, n := r.List()
	return fields{Reader: sub, left: n, name: name}
}

// has moves to the next field and reports whether it is there to be read.
func (f *fields) has() bool {
	if f.left == 0 || f.err != nil {
		return false
	}
	f.left--
	return !f.Null()
}

// must is has for a field that the standard makes mandatory.
func (f *fields) must(field string) bool {
	if f.has() {
		return true
	}
	f.failf("%s without %s", f.name, field)
	return false
}

// done passes the error to r, from which the composite was read, and returns it. f holds no pointer
// to r, so a decoding stays on the stack.
func (f *fields) done(r *Reader) error {
	r.Fail(f.err)
	return r.err
}

func (f *fields) bool() bool { return f.has() && f.Bool() }

func (f *fields) uint(absent uint32) uint32 {
	if f.has() {
		return f.Uint()
	}
	return absent
}

func (f *fields) optionalUint() (v uint32, has bool) {
	if f.has() {
		return f.Uint(), true
	}
	return 0, false
}

func (f *fields) mustUint(field string) uint32 {
	if f.must(field) {
		return f.Uint()
	}
	return 0
}

// MaxName bounds the names of containers, hosts, links and nodes, the symbols that describe nodes,
// and the conditions of errors, in bytes. A longer one is malformed. Service Bus allows 260
// characters of a queue's or topic's path and 50 of a subscription's ("Service Bus quotas"). The
// SDKs make the names of links of a path and a UUID or two.
const MaxName = 1024

// label reads a name from a field that is present.
func (f *fields) label() string {
	f.boundName()
	return f.String()
}

// kind is symbol with the bound of names.
func (f *fields) kind() Symbol {
	probe := *f
	if probe.has() {
		probe.boundName()
		f.Fail(probe.err)
	}
	return f.symbol()
}

// boundName fails if the next text is too long for a name.
func (f *fields) boundName() {
	probe := f.Reader
	if n := len(probe.StringBytes()); n > MaxName {
		f.failf("name of %d bytes in %s, at most %d allowed", n, f.name, MaxName)
	}
}

func (f *fields) string() string {
	if f.has() {
		return f.String()
	}
	return ""
}

// symbol takes a string as well: several clients write content-types and conditions as one, and
// go-amqp reads either. It is written as a symbol again.
func (f *fields) symbol() Symbol {
	if !f.has() {
		return ""
	}
	if c := f.Next(); c != codeString8 && c != codeString32 {
		return f.Symbol()
	}
	s := f.String()
	if !isASCII(s) {
		f.failf("symbol that is not ASCII in %s", f.name)
	}
	return Symbol(s)
}

// raw copies, so that the value outlives the buffer of the frame.
func (f *fields) raw() Raw {
	if f.has() {
		return bytes.Clone(f.Raw())
	}
	return nil
}

// binary copies, like raw.
func (f *fields) binary() []byte {
	if f.has() {
		return bytes.Clone(f.Binary())
	}
	return nil
}

func (f *fields) error() *Error {
	if !f.has() {
		return nil
	}
	e := new(Error)
	f.Fail(e.Decode(&f.Reader))
	return e
}

func (f *fields) state() DeliveryState {
	if !f.has() {
		return nil
	}
	return DecodeState(&f.Reader)
}

// pairs reads a map field whole.
func (f *fields) pairs() Map {
	if !f.has() {
		return nil
	}
	v := f.Value()
	m, ok := v.(Map)
	if !ok && f.err == nil {
		f.failf("want map, got %T in %s", v, f.name)
	}
	return m
}

// choice reads a ubyte of at most most from a field that is present.
func (f *fields) choice(field string, most uint8) uint8 {
	v := f.Ubyte()
	if v > most {
		f.failf("%s of %s is %d", field, f.name, v)
	}
	return v
}

func appendOptional[T any](dst []byte, encode func([]byte, T) []byte, v T, has bool) []byte {
	if has {
		return encode(dst, v)
	}
	return AppendNull(dst)
}

func appendOptionalUint(dst []byte, v uint32, has bool) []byte {
	if has {
		return AppendUint(dst, v)
	}
	return AppendNull(dst)
}

func appendOptionalBool(dst []byte, v, has bool) []byte {
	if has {
		return AppendBool(dst, v)
	}
	return AppendNull(dst)
}

// appendOptionalTrue appends false as null, as Service Bus does.
func appendOptionalTrue(dst []byte, v bool) []byte { return appendOptionalBool(dst, v, v) }

func appendOptionalBinary(dst, v []byte) []byte {
	if v == nil {
		return AppendNull(dst)
	}
	return AppendBinary(dst, v)
}

// appendOptionalMap leaves out the pairs that cannot be encoded. The map is an addition to an
// outcome or an error, which has to arrive in any case. Decoded maps always can be encoded: a pair
// is left out only if its Go type is no AMQP value, which is a bug of the caller.
func appendOptionalMap(dst []byte, m Map) []byte {
	if m == nil {
		return AppendNull(dst)
	}
	dst, start := BeginMap(dst)
	pairs := 0
	for _, p := range m {
		out, err := appendPair(dst, p)
		if err == nil {
			dst = out
			pairs++
		}
	}
	return EndMap(dst, start, pairs)
}

func appendPair(dst []byte, p Pair) ([]byte, error) {
	dst, err := AppendValue(dst, p.Key)
	if err != nil {
		return dst, err
	}
	return AppendValue(dst, p.Value)
}

// beginComposite begins a described list. Every composite is written with all its fields, because
// Python's SDK finds fields, and the payload of a transfer, by counting from the front.
func beginComposite(dst []byte, code uint64) (out []byte, start int) {
	return BeginList(AppendDescriptor(dst, code))
}
