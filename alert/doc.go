// SPDX-License-Identifier: Apache-2.0

// Package alert delivers the events of the monitor to people and systems.
//
// An [Event] says that a deadline was missed, that it is near, or that a message was not completed
// in time. An [Alerter] takes single events: the log, a webhook, a queue. A [Notifier] takes a
// [Notification] of many events at once: a chat, mail, PagerDuty, Alertmanager. [Groups] joins the
// two: it collects events in a [Digest] on the monitor queue and notifies its sink by group.
//
//	        first event         after Wait          every Interval
//	idle ───────────────▶ waiting ────────▶ firing ──────────────▶ firing
//	 ▲                                        │
//	 └────────────────────────────────────────┘
//	  resolved: no event for ResolveAfter, and the sink has all of them
//
// The monitor decides when an event is delivered again. A sink only reports whether it accepted
// one, or when it wants to be asked again. Package pace keeps a sink that
// fails from being hammered.
package alert
