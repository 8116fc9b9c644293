// SPDX-License-Identifier: Apache-2.0

// Package link is the little of AMQP that the Service Bus SDK hides and the monitor
// cannot do without:
//
//   - a receiver that grants an exact number of credits, drains what is left of them and
//     answers with released, the one outcome that costs an innocent message nothing;
//   - messages that come bare over it, stripped before the AMQP client sees them, so that none is one that it cannot
//     decode and give back;
//   - a writer that schedules messages past the AMQP client, for a third of the effort;
//   - a peek that opens no link to the queue and decodes only what the monitor judges by, so
//     that no message, whatever it holds, keeps the others from being looked at.
//
// It keeps one connection to the namespace, made when it is needed and made again
// after an error; a writer has one of its own. Receivers are opened in short bursts and closed again, since an open
// one competes for new messages and counts as a listener.
package link
