// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

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

// Optional returns a pointer to s, or nil for the empty string: fields of properties distinguish the
// two, and most sources of them do not.
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
