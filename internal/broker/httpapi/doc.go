// SPDX-License-Identifier: Apache-2.0

// Package httpapi is the broker's front: a door, see there, through which AMQP
// goes to the broker, and what the door makes of HTTP:
//
//	…/messages…  ▶ REST runtime
//	/health, /   ▶ for probes and people
//	/_overdue/   ▶ state, clock and faults, for tests
//	the rest     ▶ ATOM administration
//
// Bodies of requests are bounded in time here and in size by who reads them.
package httpapi
