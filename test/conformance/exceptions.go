// SPDX-License-Identifier: Apache-2.0

package main

// exceptions are the live tests that cannot pass here, each with what it would need.
// docs/broker/protocol.md repeats the list.
var exceptions = map[string]string{}
