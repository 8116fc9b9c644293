// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"unicode/utf8"
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
		switch {
		case m.setBeforeBody(code, v):
		case code == CodeFooter:
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

// ParseHead reads the sections before the body, where the end of the message may be missing. ok is
// false when they do not end within b; m has those that do.
func ParseHead(b []byte) (m Message, ok bool) {
	for r := NewReader(b); !r.Done(); {
		code := r.Descriptor()
		if r.Err() == nil && code >= CodeData {
			return m, true
		}
		v := r.Raw()
		if r.Err() != nil {
			return m, false
		}
		m.setBeforeBody(code, v)
	}
	return m, len(b) > 0
}

// setBeforeBody sets the section with this descriptor, if it is one that comes before the body.
func (m *Message) setBeforeBody(code uint64, v Raw) bool {
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
	default:
		return false
	}
	return true
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

// Properties is the properties section of a message (part 3 section 2.4). The zero value of a
// field means absent.
type Properties struct {
	MessageID             any // nil, uint64, UUID, []byte or string
	UserID                []byte
	To, Subject, ReplyTo  *string
	CorrelationID         any // nil, uint64, UUID, []byte or string
	ContentType           Symbol
	ContentEncoding       Symbol
	AbsoluteExpiryTime    Timestamp
	HasAbsoluteExpiryTime bool
	CreationTime          Timestamp
	HasCreationTime       bool
	GroupID               *string
	GroupSequence         uint32
	HasGroupSequence      bool
	ReplyToGroupID        *string
}

// The places of the fields in Message.Properties, for ListField.
const (
	PropertyMessageID = iota
	PropertyUserID
	PropertyTo
	PropertySubject
	PropertyReplyTo
	PropertyCorrelationID
	PropertyContentType
	PropertyContentEncoding
	PropertyAbsoluteExpiryTime
	PropertyCreationTime
	PropertyGroupID
	PropertyGroupSequence
	PropertyReplyToGroupID
	propertyFields
)

// DecodeProperties decodes Message.Properties. A nil raw gives the zero value.
func DecodeProperties(raw Raw) (Properties, error) {
	var p Properties
	if raw == nil {
		return p, nil
	}
	r := NewReader(raw)
	f := fieldList(&r, "properties")
	p.MessageID = f.messageID()
	p.UserID = f.binary()
	p.To = f.textPointer()
	p.Subject = f.textPointer()
	p.ReplyTo = f.textPointer()
	p.CorrelationID = f.messageID()
	p.ContentType = Symbol(f.text())
	p.ContentEncoding = Symbol(f.text())
	p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime = f.optionalTimestamp()
	p.CreationTime, p.HasCreationTime = f.optionalTimestamp()
	p.GroupID = f.textPointer()
	p.GroupSequence, p.HasGroupSequence = f.optionalUint()
	p.ReplyToGroupID = f.textPointer()
	return p, f.done(&r)
}

// Append appends the properties section, descriptor included. A MessageID or CorrelationID of a
// type that cannot be one is written as null.
func (p *Properties) Append(dst []byte) []byte {
	return p.appendList(AppendDescriptor(dst, CodeProperties))
}

// Raw returns the encoded list without a descriptor, for Message.Properties.
func (p *Properties) Raw() Raw { return p.appendList(nil) }

func (p *Properties) appendList(dst []byte) []byte {
	dst, start := BeginList(dst)
	dst = appendMessageID(dst, p.MessageID)
	dst = appendOptionalBinary(dst, p.UserID)
	dst = appendStringPointer(dst, p.To)
	dst = appendStringPointer(dst, p.Subject)
	dst = appendStringPointer(dst, p.ReplyTo)
	dst = appendMessageID(dst, p.CorrelationID)
	dst = appendContentSymbol(dst, p.ContentType)
	dst = appendContentSymbol(dst, p.ContentEncoding)
	dst = appendOptionalTimestamp(dst, p.AbsoluteExpiryTime, p.HasAbsoluteExpiryTime)
	dst = appendOptionalTimestamp(dst, p.CreationTime, p.HasCreationTime)
	dst = appendStringPointer(dst, p.GroupID)
	dst = appendOptionalUint(dst, p.GroupSequence, p.HasGroupSequence)
	dst = appendStringPointer(dst, p.ReplyToGroupID)
	return EndList(dst, start, propertyFields)
}

// messageID reads a message-id or a correlation-id, which has one of four types.
func (f *fields) messageID() any {
	if !f.has() {
		return nil
	}
	switch c := f.Next(); c {
	case codeUlong0, codeSmallUlong, codeUlong, codeUUID, codeBinary8, codeBinary32, codeString8, codeString32:
		return f.Value()
	default:
		f.wrong("message-id of type ulong, uuid, binary or string", c)
		return nil
	}
}

func appendMessageID(dst []byte, id any) []byte {
	switch id := id.(type) {
	case uint64:
		return AppendUlong(dst, id)
	case UUID:
		return AppendUUID(dst, id)
	case []byte:
		return AppendBinary(dst, id)
	case string:
		return AppendString(dst, id)
	}
	return AppendNull(dst)
}

// maxIDBytes is how many bytes of a binary id IDText shows. As text they are as long as the longest
// id of Service Bus.
const maxIDBytes = 64

// IDText returns a message-id or a correlation-id as text, for logs and for searches by id. A
// string is unchanged, a binary becomes the hexadecimal digits of its first 64 bytes, nil becomes
// "".
func IDText(id any) string {
	switch id := id.(type) {
	case nil:
		return ""
	case string:
		return id
	case []byte:
		return hex.EncodeToString(id[:min(len(id), maxIDBytes)])
	}
	return fmt.Sprint(id)
}

// text reads a text field as CheckProperties accepts it: a string or a symbol, in UTF-8. A stored
// message has to stay readable for code that lists or copies messages.
func (f *fields) text() string {
	if s := f.textPointer(); s != nil {
		return *s
	}
	return ""
}

func (f *fields) textPointer() *string {
	if !f.has() {
		return nil
	}
	b := f.StringBytes()
	if !utf8.Valid(b) {
		f.failf("string that is not UTF-8")
	}
	s := string(b)
	return &s
}

// appendContentSymbol writes a content-type or a content-encoding that is not ASCII as a string,
// since a symbol cannot hold it.
func appendContentSymbol(dst []byte, v Symbol) []byte {
	if !isASCII(v) {
		return AppendString(dst, string(v))
	}
	return appendOptional(dst, AppendSymbol, v, v != "")
}

// Optional returns a pointer to s, or nil for the empty string: fields of properties distinguish
// the two, and most sources of them do not.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func appendStringPointer(dst []byte, s *string) []byte {
	if s == nil {
		return AppendNull(dst)
	}
	return AppendString(dst, *s)
}

func (f *fields) optionalTimestamp() (t Timestamp, has bool) {
	if f.has() {
		return f.Timestamp(), true
	}
	return 0, false
}

func appendOptionalTimestamp(dst []byte, t Timestamp, has bool) []byte {
	if has {
		return AppendTimestamp(dst, t)
	}
	return AppendNull(dst)
}

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
