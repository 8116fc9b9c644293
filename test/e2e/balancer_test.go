// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// A balancer is one address for several endpoints, as a load balancer is.
type balancer struct {
	addr string

	mu        sync.Mutex
	endpoints []string
	next      int
}

func newBalancer(t *testing.T) *balancer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{addr: ln.Addr().String()}
	var pipes sync.WaitGroup
	pipes.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			pipes.Go(func() { b.pipe(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		pipes.Wait() // clients and proxies have ended by then
	})
	return b
}

func (b *balancer) add(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, endpoint)
}

func (b *balancer) remove(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(d string) bool { return d == endpoint })
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return b.endpoints[b.next%len(b.endpoints)]
}

// pipe connects c with the next endpoint, until either hangs up.
func (b *balancer) pipe(c net.Conn) {
	defer func() { _ = c.Close() }()
	endpoint, err := net.Dial("tcp", b.pick())
	if err != nil {
		return // the client tries again
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, endpoint)
		_ = c.Close()
	})
	_, _ = io.Copy(endpoint, c)
	_ = endpoint.Close()
	back.Wait()
}
