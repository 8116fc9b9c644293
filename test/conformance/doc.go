// SPDX-License-Identifier: Apache-2.0

// Package conformance runs the live tests of the Go SDK for Service Bus against the embedded
// broker, directly and through the relay. With these tests Microsoft checks azservicebus against
// the real service. Their source is taken from the module cache as it is. `make conformance` runs
// it; go test -run 'TestLiveTestsOfTheSDK/relay/Session' runs some of them, one way.
//
//	prepare   copy the SDK out of the module cache, build its test binaries and overdue,
//	          and ask the SDK which tests are live: those that skip in playback mode
//	isolate   enter a network namespace of our own, where every port of loopback is free
//	run       two ways side by side: directly, and through the endpoints of the proxy with every
//	          queue and topic monitored. Each way has several lanes, each with a standard and a
//	          premium namespace of its own. A live test is a subtest: it takes a lane, runs in a
//	          process of its own, and gives the lane back
//
// The tests dial the ports that Service Bus has, 5671 and 443, at the bare address of a namespace,
// and they authenticate with a token of Microsoft Entra. So a broker listens on addresses of
// loopback from 127.0.0.2 on (127.0.0.1 stays empty, a test wants nobody there). Its certificate
// names that address, and a token server plays a managed identity.
package conformance
