// SPDX-License-Identifier: Apache-2.0

package amqp

// Source is the node that messages of a link come from (part 3 section 5.3).
type Source struct {
	Address    string
	HasAddress bool // tells "" from an absent address
	// OtherAddress is set instead of Address when the address is not a string.
	OtherAddress          Raw
	Durable               uint32
	ExpiryPolicy          Symbol // empty = absent, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw
	DistributionMode      Symbol
	Filter                Raw
	DefaultOutcome        Raw
	Outcomes              Raw
	Capabilities          Raw
}

// Target is the node that messages of a link go to (part 3 section 5.4).
type Target struct {
	Address    string
	HasAddress bool // tells "" from an absent address
	// OtherAddress is set instead of Address when the address is not a string.
	OtherAddress          Raw
	Durable               uint32
	ExpiryPolicy          Symbol // empty = absent, which means session-end
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Raw
	Capabilities          Raw
}

// Coordinator is the target of a link that controls transactions (part 4 section 5.1).
type Coordinator struct{ Capabilities Raw }

// Declare asks a coordinator for a new transaction; it is the amqp-value body of a message.
type Declare struct{ GlobalID Raw }

// Discharge asks a coordinator to end a transaction; it is the amqp-value body of a message.
type Discharge struct {
	TxnID []byte
	Fail  bool // true = roll back
}
