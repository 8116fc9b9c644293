// SPDX-License-Identifier: Apache-2.0

package amqp

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
