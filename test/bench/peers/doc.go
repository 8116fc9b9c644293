// SPDX-License-Identifier: Apache-2.0

// Command peers does the work of `overdue bench expire` on other timers, stores and brokers: each
// holds the same number of deadlines, nobody receives, and it measures how late each deadline
// fires. Servers run on free ports of loopback, in temporary folders. It is a module of its own, so
// that the program's go.mod lists what ships and nothing else.
package main
