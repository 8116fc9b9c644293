// SPDX-License-Identifier: Apache-2.0

// Package rights is the one table of the requests that clients may make. It has the right, and the
// entity for it, that every link, every request to a management node and every request over HTTP
// needs. A request that is not in the table is refused. Relay, proxy and broker ask it, and act on
// nothing but its answer.
//
//	Classify   a link, by role, source and target together
//	Operation  a request to a management node
//	OfHTTP     a request over HTTP
//
// Sources: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas (which right an
// operation on a queue, topic or subscription needs), the rule managers of the SDKs (rules need no
// more than Listen), https://learn.microsoft.com/rest/api/servicebus (paths and methods).
package rights
