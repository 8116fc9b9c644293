// SPDX-License-Identifier: Apache-2.0

package amqp

import "fmt"

// The constructors of the primitive types (part 1 section 1.6). The high nibble says how wide the
// value is and the low one which type it has.
const (
	codeDescribed  byte = 0x00
	codeNull       byte = 0x40
	codeTrue       byte = 0x41
	codeFalse      byte = 0x42
	codeUint0      byte = 0x43
	codeUlong0     byte = 0x44
	codeList0      byte = 0x45
	codeUbyte      byte = 0x50
	codeByte       byte = 0x51
	codeSmallUint  byte = 0x52
	codeSmallUlong byte = 0x53
	codeSmallInt   byte = 0x54
	codeSmallLong  byte = 0x55
	codeBool       byte = 0x56
	codeUshort     byte = 0x60
	codeShort      byte = 0x61
	codeUint       byte = 0x70
	codeInt        byte = 0x71
	codeFloat      byte = 0x72
	codeChar       byte = 0x73
	codeDecimal32  byte = 0x74
	codeUlong      byte = 0x80
	codeLong       byte = 0x81
	codeDouble     byte = 0x82
	codeTimestamp  byte = 0x83
	codeDecimal64  byte = 0x84
	codeDecimal128 byte = 0x94
	codeUUID       byte = 0x98
	codeBinary8    byte = 0xa0
	codeString8    byte = 0xa1
	codeSymbol8    byte = 0xa3
	codeBinary32   byte = 0xb0
	codeString32   byte = 0xb1
	codeSymbol32   byte = 0xb3
	codeList8      byte = 0xc0
	codeMap8       byte = 0xc1
	codeList32     byte = 0xd0
	codeMap32      byte = 0xd1
	codeArray8     byte = 0xe0
	codeArray32    byte = 0xf0
)

// form describes the bytes that follow a constructor.
type form struct {
	name  string // empty = not a constructor of AMQP 1.0
	fixed int8   // bytes of the value, when size is 0
	size  int8   // bytes of the length that comes first: 0, 1 or 4
	count int8   // bytes of the element count after the length: 0, 1 or 4
}

// forms holds the constructors that exist. Others are refused, even if the high nibble says how to
// skip them: the next reader would fail on them.
var forms = [256]form{
	codeDescribed:  {name: "described value"},
	codeNull:       {name: "null"},
	codeTrue:       {name: "boolean"},
	codeFalse:      {name: "boolean"},
	codeUint0:      {name: "uint"},
	codeUlong0:     {name: "ulong"},
	codeList0:      {name: "list"},
	codeUbyte:      {name: "ubyte", fixed: 1},
	codeByte:       {name: "byte", fixed: 1},
	codeSmallUint:  {name: "uint", fixed: 1},
	codeSmallUlong: {name: "ulong", fixed: 1},
	codeSmallInt:   {name: "int", fixed: 1},
	codeSmallLong:  {name: "long", fixed: 1},
	codeBool:       {name: "boolean", fixed: 1},
	codeUshort:     {name: "ushort", fixed: 2},
	codeShort:      {name: "short", fixed: 2},
	codeUint:       {name: "uint", fixed: 4},
	codeInt:        {name: "int", fixed: 4},
	codeFloat:      {name: "float", fixed: 4},
	codeChar:       {name: "char", fixed: 4},
	codeDecimal32:  {name: "decimal32", fixed: 4},
	codeUlong:      {name: "ulong", fixed: 8},
	codeLong:       {name: "long", fixed: 8},
	codeDouble:     {name: "double", fixed: 8},
	codeTimestamp:  {name: "timestamp", fixed: 8},
	codeDecimal64:  {name: "decimal64", fixed: 8},
	codeDecimal128: {name: "decimal128", fixed: 16},
	codeUUID:       {name: "uuid", fixed: 16},
	codeBinary8:    {name: "binary", size: 1},
	codeString8:    {name: "string", size: 1},
	codeSymbol8:    {name: "symbol", size: 1},
	codeBinary32:   {name: "binary", size: 4},
	codeString32:   {name: "string", size: 4},
	codeSymbol32:   {name: "symbol", size: 4},
	codeList8:      {name: "list", size: 1, count: 1},
	codeMap8:       {name: "map", size: 1, count: 1},
	codeList32:     {name: "list", size: 4, count: 4},
	codeMap32:      {name: "map", size: 4, count: 4},
	codeArray8:     {name: "array", size: 1, count: 1},
	codeArray32:    {name: "array", size: 4, count: 4},
}

// least returns the fewest bytes that a value of this form has after its constructor.
func (f *form) least() int { return int(f.fixed) + int(f.size) + int(f.count) }

// codeName names a constructor for an error message.
func codeName(c byte) string {
	if name := forms[c].name; name != "" {
		return name
	}
	return fmt.Sprintf("unknown constructor 0x%02x", c)
}

// The numeric descriptors of AMQP 1.0.
const (
	CodeOpen        uint64 = 0x10
	CodeBegin       uint64 = 0x11
	CodeAttach      uint64 = 0x12
	CodeFlow        uint64 = 0x13
	CodeTransfer    uint64 = 0x14
	CodeDisposition uint64 = 0x15
	CodeDetach      uint64 = 0x16
	CodeEnd         uint64 = 0x17
	CodeClose       uint64 = 0x18
	CodeError       uint64 = 0x1d

	CodeReceived uint64 = 0x23
	CodeAccepted uint64 = 0x24
	CodeRejected uint64 = 0x25
	CodeReleased uint64 = 0x26
	CodeModified uint64 = 0x27
	CodeSource   uint64 = 0x28
	CodeTarget   uint64 = 0x29

	CodeCoordinator        uint64 = 0x30
	CodeDeclare            uint64 = 0x31
	CodeDischarge          uint64 = 0x32
	CodeDeclared           uint64 = 0x33
	CodeTransactionalState uint64 = 0x34

	CodeSASLMechanisms uint64 = 0x40
	CodeSASLInit       uint64 = 0x41
	CodeSASLOutcome    uint64 = 0x44

	CodeHeader                uint64 = 0x70
	CodeDeliveryAnnotations   uint64 = 0x71
	CodeMessageAnnotations    uint64 = 0x72
	CodeProperties            uint64 = 0x73
	CodeApplicationProperties uint64 = 0x74
	CodeData                  uint64 = 0x75
	CodeAMQPSequence          uint64 = 0x76
	CodeAMQPValue             uint64 = 0x77
	CodeFooter                uint64 = 0x78
)

// descriptorNames maps the symbolic descriptors to the numeric ones. A peer may send either; we
// send numbers, because go-amqp understands nothing else.
var descriptorNames = map[Symbol]uint64{
	"amqp:open:list":                  CodeOpen,
	"amqp:begin:list":                 CodeBegin,
	"amqp:attach:list":                CodeAttach,
	"amqp:flow:list":                  CodeFlow,
	"amqp:transfer:list":              CodeTransfer,
	"amqp:disposition:list":           CodeDisposition,
	"amqp:detach:list":                CodeDetach,
	"amqp:end:list":                   CodeEnd,
	"amqp:close:list":                 CodeClose,
	"amqp:error:list":                 CodeError,
	"amqp:received:list":              CodeReceived,
	"amqp:accepted:list":              CodeAccepted,
	"amqp:rejected:list":              CodeRejected,
	"amqp:released:list":              CodeReleased,
	"amqp:modified:list":              CodeModified,
	"amqp:source:list":                CodeSource,
	"amqp:target:list":                CodeTarget,
	"amqp:coordinator:list":           CodeCoordinator,
	"amqp:declare:list":               CodeDeclare,
	"amqp:discharge:list":             CodeDischarge,
	"amqp:declared:list":              CodeDeclared,
	"amqp:transactional-state:list":   CodeTransactionalState,
	"amqp:sasl-mechanisms:list":       CodeSASLMechanisms,
	"amqp:sasl-init:list":             CodeSASLInit,
	"amqp:sasl-outcome:list":          CodeSASLOutcome,
	"amqp:header:list":                CodeHeader,
	"amqp:delivery-annotations:map":   CodeDeliveryAnnotations,
	"amqp:message-annotations:map":    CodeMessageAnnotations,
	"amqp:properties:list":            CodeProperties,
	"amqp:application-properties:map": CodeApplicationProperties,
	"amqp:data:binary":                CodeData,
	"amqp:amqp-sequence:list":         CodeAMQPSequence,
	"amqp:amqp-value:*":               CodeAMQPValue,
	"amqp:footer:map":                 CodeFooter,
}

// Descriptor consumes the beginning of a described value and returns its descriptor; the value
// comes next. The symbolic descriptors of AMQP 1.0 are returned as their numbers, any other
// symbol is an error.
func (r *Reader) Descriptor() uint64 {
	if b := r.b; len(b) > 2 && b[0] == codeDescribed && b[1] == codeSmallUlong && r.ctor == nil && r.err == nil {
		r.b = b[3:] // the form of nearly every descriptor
		return uint64(b[2])
	}
	if c := r.Next(); r.Done() || c != codeDescribed {
		if r.code(); r.err == nil {
			r.wrong("described value", c)
		}
		return 0
	}
	d := r.descriptor()
	code := d.descriptorCode()
	r.afterDescriptor(d)
	if r.err != nil {
		return 0
	}
	return code
}

// PeekDescriptor returns the descriptor of the next value and consumes nothing. It returns 0 when
// the value is not described, or by a symbol that AMQP 1.0 does not define.
func (r *Reader) PeekDescriptor() uint64 {
	if r.Done() || r.Next() != codeDescribed {
		return 0
	}
	d := r.descriptor()
	if c := d.Next(); c == codeSymbol8 || c == codeSymbol32 {
		return descriptorNames[Symbol(d.StringBytes())]
	}
	if n, err := sizeOf(d.b, 0); err != nil || n == 0 {
		return 0 // avoids the error that Ulong would build
	}
	switch d.Next() {
	case codeSmallUlong, codeUlong, codeUlong0:
		return d.Ulong()
	}
	return 0
}

func (r *Reader) descriptorCode() uint64 {
	if c := r.Next(); c != codeSymbol8 && c != codeSymbol32 {
		return r.Ulong()
	}
	name := r.StringBytes()
	code, ok := descriptorNames[Symbol(name)]
	if !ok {
		r.failf("unknown descriptor %.64q", name)
	}
	return code
}

// descriptor returns a Reader at the descriptor of the described value that comes next, and
// afterDescriptor moves r to where that Reader was left. They hide that the elements of an array
// have theirs in the shared constructor.
func (r *Reader) descriptor() Reader {
	if r.ctor != nil {
		return Reader{b: r.ctor[r.at+1:]}
	}
	return Reader{b: r.b[1:]}
}

func (r *Reader) afterDescriptor(d Reader) {
	r.Fail(d.err)
	if r.err != nil {
		return
	}
	if r.ctor != nil {
		r.at = len(r.ctor) - len(d.b)
		return
	}
	r.b = d.b
}
