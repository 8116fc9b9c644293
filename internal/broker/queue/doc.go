// SPDX-License-Identifier: Apache-2.0

// Package queue is one queue as a value, with the semantics of Azure Service Bus. It has messages
// in sequence order, locks with tokens and a time limit, a schedule, expiry, deferral and a
// dead-letter queue. It knows no network and no wire format; a message body is opaque.
//
//	            Send                    receive                  Complete
//	sender ───────────────▶ waiting ───────────────▶ locked ───────────────▶ gone
//	   │                     ▲  │  ◀─────────────────  │ │
//	   │ Schedule            │  │   Abandon, Release,  │ │ Defer
//	   ▼        activation   │  │   lock lapses        │ ▼
//	scheduled ───────────────┘  │ expires              │ deferred ──▶ locked by number
//	                            ▼                      ▼
//	                     dead-letter queue ◀── DeadLetter, too many deliveries
//
// # Structure
//
// One mutex guards a queue. Its parts each own their fields and name the parts that they use:
//
//	intake       refuses, finds duplicates (history), and stores what is sent
//	entries      all messages, numbered by numbers
//	waiting      those that a consumer can be given; dispatcher gives them
//	schedule     those that wait for their time
//	locks        those that were delivered, and what becomes of them
//	expiry       those that have outlived their time to live
//	deadLetters  those on their way to the dead-letter queue
//	Sessions     the lines and locks of a session queue
//	agenda       what becomes due and when, and the timer
//
// Every message is one entry, which stands in an index by sequence number (a B+tree) and in at most
// two heaps. One heap has the waiting by order of arrival, one the locked by end of lock, one the
// scheduled by enqueue time. A waiting entry that can expire also stands in the heap by expiry.
// Every operation costs O(log n). A table gives each entry a ref, by which index and heaps name it:
// they have no pointers, so the garbage collector has nothing to do with them. The heaps of what
// waits are lazy, see lazyHeap; for the others the table keeps the position of each entry. A
// dead-letter queue is a queue of its own with its own mutex; the order is queue first, dead-letter
// queue second, and never the other way round.
//
// # Time
//
// Every operation first does what has become due by the broker's clock: locks lapse, scheduled
// messages are activated and, when eager, messages expire. The queue's one timer only causes the
// same for an idle queue: it is a wake-up, never the truth. So the state that an operation sees is
// never behind the clock, whenever the timer runs. If thousands of messages are to be activated or
// have expired at once, an operation moves a part and leaves the rest to the timer. An expired
// message is not delivered all the same: before the rest is moved, no receive gets a message and no
// drain ends.
//
// # Sessions
//
// In a session queue every message belongs to a session, and each session is a line of its own. The
// line has the session's waiting messages, and the consumers of the Session that holds its lock.
// Message locks live under that lock and end with it. Those who want the next session wait in
// order, and sessions that nobody holds are offered in the order in which they came to have
// something to give. A session is forgotten when it has no messages, no state and no holder.
//
// # Transactions
//
// A transaction of several queues is made of parts that are prepared in each. Hold keeps locks from
// lapsing and from others until the transaction ends, Reserve takes the room for messages. Each
// step that can fail is over by then, so the parts are settled and sent one queue after the other
// without a lock over all of them.
//
// # Durability
//
// With Config.Log, each operation reports what it has changed as one step, before it gives up the
// mutex (changes.go). A message is named there by its first place in the order of arrival, and
// stays in one step when it moves to the dead-letter queue. States of sessions and the message-ids of
// the history are in the steps that change them. Restore and Resume make the queue again from what
// the log has kept. Without a log nothing is collected.
//
// The log says how many bytes of message-ids and bodies stay in memory (content.go). Those of a
// message that comes beyond leave memory once they are on disk. Peeks and receives read them before
// they take the mutex, so a message is taken with its content or not at all.
//
// # Consumers
//
// Deliveries are assigned inside the mutex and put in the consumer's outbox, from where its owner
// fetches them with Take. Nothing is called back under the mutex and a slow consumer stops nobody
// else. Its outbox is bounded, deliveries that it leaves there go back to the queue when the lock
// lapses, and it gets no more before the next Take.
package queue
