// SPDX-License-Identifier: Apache-2.0

// Package dapr tests examples/dapr: Dapr's own component publishes through the endpoint of the
// built program. It is a module of its own, since Dapr's components need many others.
package dapr
