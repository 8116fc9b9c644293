// SPDX-License-Identifier: Apache-2.0

// Command peers does the work of `overdue bench expire` on other timers, stores and brokers: each
// holds the same number of deadlines, nobody receives, and it measures how late each deadline
// fires. With -work sends it does that of `overdue bench broker` on other brokers: each
// acknowledges sends once they are on its disk, and they take turns. Servers run on free ports of
// loopback, in temporary folders. It is a module of its own, so that the program's go.mod lists
// what ships and nothing else.
package main
