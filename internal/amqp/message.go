// SPDX-License-Identifier: Apache-2.0

package amqp

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

// Header is the header section of a message (part 3 section 2.1).
type Header struct {
	Durable       bool
	Priority      uint8  // absent is read as DefaultPriority; always written
	TTL           uint32 // milliseconds
	HasTTL        bool
	FirstAcquirer bool
	DeliveryCount uint32 // always written: .NET clients fail on an absent one
}

// DefaultPriority is the priority of a message that states none.
const DefaultPriority = 4

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
