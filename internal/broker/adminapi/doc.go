// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the administration API of a namespace as clients speak it:
// Atom entries and feeds over HTTP, with the settings of an entity as XML inside.
//
//	/$namespaceinfo                          GET
//	/                                        GET
//	/$Resources/Queues, /$Resources/Topics   GET  $skip, $top, $filter
//	/{queue or topic}                        GET PUT DELETE
//	/{topic}/Subscriptions                   GET  $skip, $top, $filter
//	/{topic}/Subscriptions/{s}               GET PUT DELETE
//	/{topic}/Subscriptions/{s}/Rules         GET  $skip, $top, $filter
//	/{topic}/Subscriptions/{s}/Rules/{r}     GET PUT DELETE
//
// PUT creates, and with If-Match updates. Names of queues and topics contain
// slashes; the fixed parts of a path are compared without case.
//
// What is an element of an entity, in which order, and between which bounds, is
// one table per kind of entity: queue.go, topic.go, subscription.go. Elements that
// come in another order than the service's are kept as they are and shown again, but
// not applied, see atom.Elements. The bounds are those of the service, where it
// documents any, and narrower than what broker.QueueConfig takes; a value that an
// entity has already is always accepted, so that what was read can be written back.
//
// An update is the whole of an entity: what it leaves out gets its default, as
// clients that read, change and write never notice. The answer to a create lacks what
// is counted; the one to an update of a queue or topic says what the update said.
//
// A queue or topic that does not exist, and what would be below it, is answered
// with an empty feed and status 200, as the service does, a missing subscription
// or rule of a topic with 404. The SDKs turn both into "not found".
//
// Ids and links are the URL that was asked for, in its case, with its query. Legacy
// clients look for it: azure-sb reads a list whose id it knows, and Python's
// azure-servicebus 0.21 cuts the name of a subscription out of its id.
package adminapi
