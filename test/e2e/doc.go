// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the whole flow in one process, on fake time: a send, its companion, the
// deadline, the check, the dead letter and the alert. Start reading at flow_test.go.
package e2e
