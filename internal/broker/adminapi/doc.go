// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the administration API of a namespace as clients speak it:
// Atom entries and feeds over HTTP, with the settings of an entity as XML inside.
//
//	/$namespaceinfo                          GET
//	/$Resources/Queues, /$Resources/Topics   GET  $skip, $top
//	/{queue or topic}                        GET PUT DELETE
//	/{topic}/Subscriptions                   GET  $skip, $top
//	/{topic}/Subscriptions/{s}               GET PUT DELETE
//	/{topic}/Subscriptions/{s}/Rules         GET  $skip, $top
//	/{topic}/Subscriptions/{s}/Rules/{r}     GET PUT DELETE
//
// PUT creates, and with If-Match updates. Names of queues and topics contain
// slashes; the fixed parts of a path are compared without case.
//
// What is an element of an entity, in which order, and between which bounds, is
// one table per kind of entity: queue.go, topic.go, subscription.go. Elements are
// written in the order of the service, and accepted in any. The bounds are those
// of the service, where it documents any, and narrower than what
// broker.QueueConfig takes; a value that an entity has already is always accepted,
// so that what was read can be written back.
//
// An update is the whole of an entity: what it leaves out gets its default, as
// clients that read, change and write never notice.
//
// A queue or topic that does not exist is answered with an empty feed and status
// 200, as the service does, a missing subscription or rule with 404. The SDKs
// turn both into "not found".
package adminapi
