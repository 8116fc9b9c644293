// SPDX-License-Identifier: Apache-2.0

// Package httpapi serves the broker on one port, see package listener: AMQP goes to the
// broker, and HTTP requests go to these handlers:
//
//	…/messages…  ▶ REST runtime
//	/health, /   ▶ for probes and people
//	/_overdue/   ▶ state, clock and faults, for tests
//	the rest     ▶ ATOM administration
//
// Bodies of requests are bounded in time here and in size by the handler that reads them.
package httpapi
