// SPDX-License-Identifier: Apache-2.0

package amqp

// The codes of a SASLOutcome.
const (
	SASLOK      uint8 = 0
	SASLAuth    uint8 = 1 // wrong credentials
	SASLSys     uint8 = 2 // system error
	SASLSysPerm uint8 = 3 // permanent system error
	SASLSysTemp uint8 = 4 // transient system error
)

type (
	// SASLMechanisms lists what the server offers (part 5 section 3.3.1).
	SASLMechanisms struct{ Mechanisms []Symbol }

	// SASLInit chooses a mechanism (part 5 section 3.3.2).
	SASLInit struct {
		Mechanism       Symbol
		InitialResponse []byte // nil = absent
		Hostname        string // empty = absent
	}

	// SASLChallenge is the server's question (part 5 section 3.3.3).
	SASLChallenge struct{ Challenge []byte }

	// SASLResponse is the client's answer (part 5 section 3.3.4).
	SASLResponse struct{ Response []byte }

	// SASLOutcome ends the exchange (part 5 section 3.3.5).
	SASLOutcome struct {
		Code           uint8
		AdditionalData []byte // nil = absent
	}
)
