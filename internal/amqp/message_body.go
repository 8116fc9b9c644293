// SPDX-License-Identifier: Apache-2.0

package amqp

import "iter"

// AppendData appends a data section.
func AppendData(dst, b []byte) []byte {
	return AppendBinary(AppendDescriptor(dst, CodeData), b)
}

// AppendValueSection appends an amqp-value section; a nil v makes it the null value.
func AppendValueSection(dst []byte, v Raw) []byte {
	return AppendRaw(AppendDescriptor(dst, CodeAMQPValue), v)
}

// DataSections returns the contents of the data sections of a body, such as the messages of a
// batch, in order. They alias body. When the body is malformed or has a section of another kind,
// the error comes as the last element.
func DataSections(body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for r := NewReader(body); len(r.b) != 0; {
			if code := r.Descriptor(); r.err == nil && code != CodeData {
				r.failf("want data section, got descriptor 0x%02x", code)
			}
			b := r.Binary()
			if !yield(b, r.err) || r.err != nil {
				return
			}
		}
	}
}

// Value returns a Reader at the value of an amqp-value body. It reports false if the body is of
// another kind.
func (m *Message) Value() (Reader, bool) {
	r := NewReader(m.Body)
	if r.PeekDescriptor() != CodeAMQPValue {
		return Reader{}, false
	}
	r.Descriptor()
	return r, r.err == nil
}
