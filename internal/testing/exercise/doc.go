// SPDX-License-Identifier: Apache-2.0

// Package exercise is the conformance suite: it states how a Service Bus namespace behaves.
//
// Its cases use nothing but the protocol, so [Run] can check any [Target]. Targets are the embedded
// broker, the endpoints of the proxy before it, and in the tests of this package a namespace of the
// real service.
package exercise
