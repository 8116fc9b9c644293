// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for tests whose programs cannot choose and report one themselves, or
// that listen at one port again and again.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports lie below those that connections, and listeners at port 0, get by themselves on Linux.
// Otherwise another process would have taken one of these by the time that the program listens.
const (
	first = 20_000
	ports = 12_000
)

var (
	mu    sync.Mutex
	given = map[int]bool{} // by this process, never twice
)

// Find is a port of loopback that nothing listens on, and that no other call in this process got.
func Find() (string, error) {
	mu.Lock()
	defer mu.Unlock()
	for range 1000 {
		n := first + rand.IntN(ports)
		if given[n] {
			continue
		}
		port := strconv.Itoa(n)
		if ln, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			given[n] = true
			return port, ln.Close()
		}
	}
	return "", errors.New("freeport: no port from 20000 to 31999 is free")
}

// Address is an address with such a port. It ends the test when there is none.
func Address(t interface {
	Helper()
	Fatal(...any)
}) string {
	t.Helper()
	port, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}
