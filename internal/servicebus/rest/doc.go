// SPDX-License-Identifier: Apache-2.0

// Package rest is what the REST runtime API of Service Bus says on the wire, both ways:
//
//	POST …/messages            ParseSingle, ParseBatch    a request's headers and body → messages
//	the answer to a receive    AppendBroker, Header       what a received message shows
//	every refusal              ErrorBody
//
// It knows bytes, header fields and times, and neither entities nor a broker: the proxy's endpoint
// and the broker's own stand on it. Custom properties are header fields, and their names are
// the sender's own: Serve keeps the spelling that net/http would change.
package rest
