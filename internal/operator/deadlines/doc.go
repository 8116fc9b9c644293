// SPDX-License-Identifier: Apache-2.0

// Package deadlines shows operators what Overdue knows of deadlines: [List] counts the outstanding
// ones and names the next, [Explain] shows the history of one message. Both only peek, so they take
// no lock and disturb no consumer.
//
// Both read the companions where they wait, which is the monitor queue or Redis. A companion is
// deleted when the monitor has finished with it, and a message when it is completed, so neither
// function knows what is over. The exception is what the monitor keeps of its latest notifications.
package deadlines
