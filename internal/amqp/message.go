// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
)

// BatchMessageFormat is the message format of a batch: every data section of the body is itself
// an encoded message.
const BatchMessageFormat = 0x80013700

// Message is a message cut into its sections (part 3 section 2). Its fields alias the bytes it was
// parsed from; nothing is copied. The Raw ones are the sections' values, without the descriptor;
// nil = absent.
type Message struct {
	Header                Raw    // list
	DeliveryAnnotations   Raw    // map
	MessageAnnotations    Raw    // map
	Properties            Raw    // list
	ApplicationProperties Raw    // map
	Body                  []byte // all sections of the body, verbatim, descriptors included
	Footer                Raw    // map
}

// ParseMessage cuts an encoded message into its sections. It checks their order and their types,
// that only data and sequence sections repeat, and that the body is of one kind. Lists and maps
// must have as many elements as they state. It does not check those elements. It allows three
// deviations that clients make. A message may have no body (go-amqp), delivery annotations may be
// the last section (the Python SDKs), and the footer may come before the body (rhea).
func ParseMessage(b []byte) (Message, error) {
	var m Message
	r := NewReader(b)
	last, body := uint64(0), -1
	for !r.Done() {
		begin := len(b) - r.Len()
		code := r.Descriptor()
		switch {
		case code == CodeDeliveryAnnotations && last > code && m.DeliveryAnnotations == nil:
			last = CodeFooter // nothing may follow
		case code == CodeFooter && m.Footer != nil:
			return Message{}, fmt.Errorf("%w: section 0x%02x comes twice", ErrMalformed, code)
		case code == CodeFooter && body < 0 && last < CodeFooter:
			last = CodeApplicationProperties // nothing but a body may follow
		default:
			if err := checkOrder(&r, last, code); err != nil {
				return Message{}, err
			}
			last = code
		}
		v := section(&r, code)
		if r.err != nil {
			return Message{}, r.err
		}
		switch code {
		case CodeHeader:
			m.Header = v
		case CodeDeliveryAnnotations:
			m.DeliveryAnnotations = v
		case CodeMessageAnnotations:
			m.MessageAnnotations = v
		case CodeProperties:
			m.Properties = v
		case CodeApplicationProperties:
			m.ApplicationProperties = v
		case CodeFooter:
			m.Footer = v
		default:
			if body < 0 {
				body = begin
			}
			end := len(b) - r.Len()
			m.Body = b[body:end:end]
		}
	}
	return m, nil
}

// checkOrder compares descriptors, which rise in the required order of the sections.
func checkOrder(r *Reader, last, code uint64) error {
	switch {
	case r.err != nil:
		return r.err
	case code < CodeHeader || code > CodeFooter:
		return fmt.Errorf("%w: descriptor 0x%02x is not a section of a message", ErrMalformed, code)
	case code == last && (code == CodeData || code == CodeAMQPSequence):
		return nil
	case code <= last || isBody(last) && isBody(code):
		return fmt.Errorf("%w: section 0x%02x after section 0x%02x", ErrMalformed, code, last)
	}
	return nil
}

func isBody(code uint64) bool { return code >= CodeData && code <= CodeAMQPValue }

// section consumes the value of a section after checking its type and its elements.
func section(r *Reader, code uint64) Raw {
	v := r.Raw()
	if r.err != nil || code == CodeAMQPValue {
		return v
	}
	c := v[0]
	switch code {
	case CodeHeader, CodeProperties, CodeAMQPSequence:
		if c != codeList8 && c != codeList32 && c != codeList0 {
			r.wrong("list", c)
		}
	case CodeData:
		if c != codeBinary8 && c != codeBinary32 {
			r.wrong("binary", c)
		}
		return v
	default:
		if c != codeMap8 && c != codeMap32 {
			r.wrong("map", c)
		}
	}
	if err := checkElements(v); err != nil {
		r.Fail(err)
		return nil
	}
	return v
}

// checkElements checks that a list or map ends where its last element does. Readers that go by the
// count and readers that go by the size would otherwise see different messages.
func checkElements(v Raw) error {
	f := &forms[v[0]]
	count, content := uint32(0), v[1+f.size+f.count:]
	switch f.count {
	case 1:
		count = uint32(v[2])
	case 4:
		count = binary.BigEndian.Uint32(v[5:])
	}
	if count%2 != 0 && f.name == "map" {
		return fmt.Errorf("%w: map of %d elements, which is odd", ErrMalformed, count)
	}
	for range count { // ends at the end of content at the latest
		n, err := sizeOf(content, 0)
		if err != nil {
			return err
		}
		content = content[n:]
	}
	if len(content) != 0 {
		return fmt.Errorf("%w: %d bytes after the last element", ErrMalformed, len(content))
	}
	return nil
}

// Append appends the encoded message: what ParseMessage was given, byte for byte, unless that had
// descriptors in another form than ours, or a section out of its place.
func (m *Message) Append(dst []byte) []byte {
	dst = appendSection(dst, CodeHeader, m.Header)
	dst = appendSection(dst, CodeDeliveryAnnotations, m.DeliveryAnnotations)
	dst = appendSection(dst, CodeMessageAnnotations, m.MessageAnnotations)
	dst = appendSection(dst, CodeProperties, m.Properties)
	dst = appendSection(dst, CodeApplicationProperties, m.ApplicationProperties)
	dst = append(dst, m.Body...)
	return appendSection(dst, CodeFooter, m.Footer)
}

func appendSection(dst []byte, code uint64, v Raw) []byte {
	if v == nil {
		return dst
	}
	return append(AppendDescriptor(dst, code), v...)
}
