// SPDX-License-Identifier: Apache-2.0

package freeport_test

import (
	"net"
	"testing"

	"overdue/internal/testing/freeport"
)

func TestAPortIsFreeAndGivenOnce(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		addr := freeport.Address(t)
		if seen[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		seen[addr] = true
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
	}
}
