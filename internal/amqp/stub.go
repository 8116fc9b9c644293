// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"io"
	"iter"
)

// Bodies follow. Signatures are final.

type Reader struct {
	b   []byte
	err error
}

func NewReader(b []byte) Reader { return Reader{b: b} }

// --- Reader: sticky error
func (r *Reader) Err() error             { panic("soon") }
func (r *Reader) Fail(err error)         { panic("soon") } // makes err sticky unless there is one already
func (r *Reader) Len() int               { panic("soon") }
func (r *Reader) Rest() []byte           { panic("soon") } // the unread bytes (the payload behind a performative)
func (r *Reader) Done() bool             { panic("soon") }
func (r *Reader) Next() byte             { panic("soon") }
func (r *Reader) Null() bool             { panic("soon") }
func (r *Reader) Skip()                  { panic("soon") }
func (r *Reader) Raw() Raw               { panic("soon") } // aliases
func (r *Reader) Descriptor() uint64     { panic("soon") }
func (r *Reader) PeekDescriptor() uint64 { panic("soon") } // 0 when the next value is not described by a known descriptor; consumes nothing
func (r *Reader) List() (Reader, int)    { panic("soon") }
func (r *Reader) Map() (Reader, int)     { panic("soon") }
func (r *Reader) Array() (Reader, int)   { panic("soon") } // the elements are read like those of a list

func (r *Reader) Bool() bool           { panic("soon") }
func (r *Reader) Ubyte() uint8         { panic("soon") }
func (r *Reader) Ushort() uint16       { panic("soon") }
func (r *Reader) Uint() uint32         { panic("soon") }
func (r *Reader) Ulong() uint64        { panic("soon") }
func (r *Reader) Byte() int8           { panic("soon") }
func (r *Reader) Short() int16         { panic("soon") }
func (r *Reader) Int() int32           { panic("soon") }
func (r *Reader) Long() int64          { panic("soon") }
func (r *Reader) Integer() int64       { panic("soon") } // any integer type
func (r *Reader) Float() float32       { panic("soon") }
func (r *Reader) Double() float64      { panic("soon") }
func (r *Reader) Char() Char           { panic("soon") }
func (r *Reader) Timestamp() Timestamp { panic("soon") }
func (r *Reader) UUID() UUID           { panic("soon") }
func (r *Reader) Binary() []byte       { panic("soon") } // aliases
func (r *Reader) String() string       { panic("soon") }
func (r *Reader) StringBytes() []byte  { panic("soon") } // string or symbol, aliases, unchecked
func (r *Reader) Symbol() Symbol       { panic("soon") }
func (r *Reader) Symbols() []Symbol    { panic("soon") } // null, one symbol or an array of symbols
func (r *Reader) Value() any           { panic("soon") } // shares nothing with the input

// --- encoders
func AppendNull(dst []byte) []byte                     { panic("soon") }
func AppendBool(dst []byte, v bool) []byte             { panic("soon") }
func AppendUbyte(dst []byte, v uint8) []byte           { panic("soon") }
func AppendUshort(dst []byte, v uint16) []byte         { panic("soon") }
func AppendUint(dst []byte, v uint32) []byte           { panic("soon") }
func AppendUlong(dst []byte, v uint64) []byte          { panic("soon") }
func AppendByte(dst []byte, v int8) []byte             { panic("soon") }
func AppendShort(dst []byte, v int16) []byte           { panic("soon") }
func AppendInt(dst []byte, v int32) []byte             { panic("soon") }
func AppendLong(dst []byte, v int64) []byte            { panic("soon") }
func AppendFloat(dst []byte, v float32) []byte         { panic("soon") }
func AppendDouble(dst []byte, v float64) []byte        { panic("soon") }
func AppendDecimal32(dst []byte, v Decimal32) []byte   { panic("soon") }
func AppendDecimal64(dst []byte, v Decimal64) []byte   { panic("soon") }
func AppendDecimal128(dst []byte, v Decimal128) []byte { panic("soon") }
func AppendChar(dst []byte, v Char) []byte             { panic("soon") }
func AppendTimestamp(dst []byte, v Timestamp) []byte   { panic("soon") }
func AppendUUID(dst []byte, v UUID) []byte             { panic("soon") }
func AppendBinary(dst, v []byte) []byte                { panic("soon") }
func AppendString(dst []byte, v string) []byte         { panic("soon") }
func AppendSymbol(dst []byte, v Symbol) []byte         { panic("soon") }
func AppendSymbols(dst []byte, v ...Symbol) []byte     { panic("soon") } // an array
func AppendRaw(dst []byte, v Raw) []byte               { panic("soon") } // nil = null
func AppendDescriptor(dst []byte, code uint64) []byte  { panic("soon") } // 0x00 and a ulong
func AppendValue(dst []byte, v any) ([]byte, error)    { panic("soon") }
func Encode(v any) (Raw, error)                        { panic("soon") } // AppendValue on its own

// BeginList opens a list; append the elements, then EndList(dst, start, number of elements).
func BeginList(dst []byte) (out []byte, start int) { panic("soon") }
func EndList(dst []byte, start, count int) []byte  { panic("soon") }
func BeginMap(dst []byte) (out []byte, start int)  { panic("soon") }
func EndMap(dst []byte, start, pairs int) []byte   { panic("soon") }

// --- frames
func BeginFrame(dst []byte, typ byte, ch uint16) []byte                        { panic("soon") } // start = len(dst) before the call
func EndFrame(dst []byte, start int) []byte                                    { panic("soon") }
func AppendFrame(dst []byte, ch uint16, p Performative, payload []byte) []byte { panic("soon") } // p nil = keep-alive
func AppendSASLFrame(dst []byte, p Performative) []byte                        { panic("soon") }

type FrameReader struct{}

func NewFrameReader(r io.Reader, max uint32) *FrameReader { panic("soon") }
func (fr *FrameReader) SetMax(max uint32)                 { panic("soon") }
func (fr *FrameReader) ReadProto() ([8]byte, error)       { panic("soon") } // protocol header
func (fr *FrameReader) Next() (Frame, error)              { panic("soon") } // Body valid until the next call; io.EOF between frames, io.ErrUnexpectedEOF inside one
func (fr *FrameReader) Ready() bool                       { panic("soon") } // a whole frame is buffered: Next will not block

// --- performatives: every pointer has Decode(r *Reader) error (descriptor included; sticky error returned) and Append.
// Decoded performatives own their memory, except Transfer.DeliveryTag, which aliases.
func DecodePerformative(body []byte) (p Performative, payload []byte, err error) { panic("soon") }

// Decoder reuses one Transfer, Disposition and Flow: what Decode returns is valid until the next call.
type Decoder struct{}

func (d *Decoder) Decode(body []byte) (p Performative, payload []byte, err error) { panic("soon") }

func (*Open) Append(dst []byte) []byte               { panic("soon") }
func (*Begin) Append(dst []byte) []byte              { panic("soon") }
func (*Attach) Append(dst []byte) []byte             { panic("soon") }
func (*Flow) Append(dst []byte) []byte               { panic("soon") }
func (*Transfer) Append(dst []byte) []byte           { panic("soon") }
func (*Disposition) Append(dst []byte) []byte        { panic("soon") }
func (*Detach) Append(dst []byte) []byte             { panic("soon") }
func (*End) Append(dst []byte) []byte                { panic("soon") }
func (*Close) Append(dst []byte) []byte              { panic("soon") }
func (*Error) Append(dst []byte) []byte              { panic("soon") }
func (*Source) Append(dst []byte) []byte             { panic("soon") }
func (*Target) Append(dst []byte) []byte             { panic("soon") }
func (*Coordinator) Append(dst []byte) []byte        { panic("soon") }
func (*Declare) Append(dst []byte) []byte            { panic("soon") }
func (*Discharge) Append(dst []byte) []byte          { panic("soon") }
func (Accepted) Append(dst []byte) []byte            { panic("soon") }
func (Released) Append(dst []byte) []byte            { panic("soon") }
func (*Received) Append(dst []byte) []byte           { panic("soon") }
func (*Rejected) Append(dst []byte) []byte           { panic("soon") }
func (*Modified) Append(dst []byte) []byte           { panic("soon") }
func (*Declared) Append(dst []byte) []byte           { panic("soon") }
func (*TransactionalState) Append(dst []byte) []byte { panic("soon") }
func (*SASLMechanisms) Append(dst []byte) []byte     { panic("soon") }
func (*SASLInit) Append(dst []byte) []byte           { panic("soon") }
func (*SASLChallenge) Append(dst []byte) []byte      { panic("soon") }
func (*SASLResponse) Append(dst []byte) []byte       { panic("soon") }
func (*SASLOutcome) Append(dst []byte) []byte        { panic("soon") }

func (*Open) Decode(r *Reader) error           { panic("soon") }
func (*Begin) Decode(r *Reader) error          { panic("soon") }
func (*Attach) Decode(r *Reader) error         { panic("soon") }
func (*Flow) Decode(r *Reader) error           { panic("soon") }
func (*Transfer) Decode(r *Reader) error       { panic("soon") }
func (*Disposition) Decode(r *Reader) error    { panic("soon") }
func (*Detach) Decode(r *Reader) error         { panic("soon") }
func (*End) Decode(r *Reader) error            { panic("soon") }
func (*Close) Decode(r *Reader) error          { panic("soon") }
func (*Error) Decode(r *Reader) error          { panic("soon") }
func (*Source) Decode(r *Reader) error         { panic("soon") }
func (*Target) Decode(r *Reader) error         { panic("soon") }
func (*Coordinator) Decode(r *Reader) error    { panic("soon") }
func (*Declare) Decode(r *Reader) error        { panic("soon") }
func (*Discharge) Decode(r *Reader) error      { panic("soon") }
func (*SASLMechanisms) Decode(r *Reader) error { panic("soon") }
func (*SASLInit) Decode(r *Reader) error       { panic("soon") }
func (*SASLChallenge) Decode(r *Reader) error  { panic("soon") }
func (*SASLResponse) Decode(r *Reader) error   { panic("soon") }
func (*SASLOutcome) Decode(r *Reader) error    { panic("soon") }
func DecodeState(r *Reader) DeliveryState      { panic("soon") } // null gives nil; error is r's

// Trace returns the compact one-line form of a performative; payload is the number of bytes behind it.
func Trace(p Performative, payload int) string { panic("soon") }

// --- messages
func ParseMessage(b []byte) (Message, error)            { panic("soon") }
func (m *Message) Append(dst []byte) []byte             { panic("soon") }
func DecodeHeader(raw Raw) (Header, error)              { panic("soon") } // nil Raw = defaults
func (h Header) Append(dst []byte) []byte               { panic("soon") } // section, descriptor included
func (h Header) Raw() Raw                               { panic("soon") } // for Message.Header
func DecodeProperties(raw Raw) (Properties, error)      { panic("soon") } // nil Raw = zero
func (p *Properties) Append(dst []byte) []byte          { panic("soon") } // section, descriptor included
func (p *Properties) Raw() Raw                          { panic("soon") } // for Message.Properties
func MapLookup(raw Raw, key string) (Reader, bool)      { panic("soon") } // string and symbol keys; Reader stands at the value
func ListField(raw Raw, i int) (Reader, bool)           { panic("soon") } // field i of a list such as Message.Properties; false when absent or null
func DataSections(body []byte) iter.Seq2[[]byte, error] { panic("soon") } // contents of the data sections of a body
func (m *Message) Value() (Reader, bool)                { panic("soon") } // the value of an amqp-value body
func AppendData(dst, b []byte) []byte                   { panic("soon") } // a data section
func AppendValueSection(dst []byte, v Raw) []byte       { panic("soon") } // an amqp-value section
// OverlayMap appends the map base with the pairs of over set, replacing pairs of the same key.
func OverlayMap(dst []byte, base Raw, over Map) ([]byte, error) { panic("soon") }
