// SPDX-License-Identifier: Apache-2.0

// Package alert takes what the monitor has found to those who have to know: events, and the sinks that take
// them. When an event is told again is the monitor's to say; a sink only says whether it has taken one.
package alert
