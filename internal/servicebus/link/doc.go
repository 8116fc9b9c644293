// SPDX-License-Identifier: Apache-2.0

// Package link is the part of AMQP that the Service Bus SDK hides and Overdue
// cannot do without, on internal/amqp/client:
//
//   - a receiver that grants an exact number of credits, drains what is left of them and
//     answers with released, the one outcome that changes nothing about a message;
//   - messages of which only the needed fields are decoded, so that each can be given back;
//   - sends of encoded messages, and of scheduled ones in batches, whose links reconnect;
//   - a peek that opens no link to the queue and decodes only what the monitor judges by, so
//     that no message keeps others from being checked.
//
// A Namespace has a connection to receive over and one to send over. Each is made when it is needed
// and made again after an error; a sender of ReconnectingSender has one of its own. Receivers are
// opened in short bursts and closed again, since an open one competes for new messages and counts
// as a listener.
package link
