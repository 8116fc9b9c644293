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
// One table per kind of entity has its elements, their order and their bounds, in files called
// queue.go, topic.go and subscription.go. Elements that come in another order than the service's
// are kept as they are and shown again, but not applied, see atom.Elements. The bounds are those of
// the service, where it documents any, and narrower than those of broker.QueueConfig. The values
// that an entity has already are always accepted, so that a client can write back what it has read.
//
// An update is the whole of an entity: what it leaves out gets its default, as
// clients that read, change and write never notice. The answer to a create lacks what
// is counted; the one to an update of a queue or topic says what the update said.
//
// A queue or topic that does not exist is answered with an empty feed and status 200, as the
// service does, and so is a path below it. A missing subscription or rule of a topic is answered
// with 404. The SDKs turn both into "not found".
//
// Ids and links are the URL that was asked for, in its case, with its query. Legacy
// clients look for it: azure-sb reads a list whose id it knows, and Python's
// azure-servicebus 0.21 cuts the name of a subscription out of its id.
package adminapi
