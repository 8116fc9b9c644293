// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"sync"

	"overdue/internal/amqp"
)

// grants tells receivers when credit that they have granted is on the wire. The AMQP client hands
// it from goroutine to goroutine before it writes it, which takes as long as a busy machine makes
// it take, and a drain that overtakes it drops it: then the broker would never have been woken.
type grants struct {
	mu       sync.Mutex
	expected map[string]chan struct{} // by the name of the link, until its attach is written
	links    map[bareLink]chan struct{}
}

// expect returns what gets a token for each flow with credit that is written over the link of that
// name.
func (g *grants) expect(name string) chan struct{} {
	granted := make(chan struct{}, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.expected == nil {
		g.expected, g.links = map[string]chan struct{}{}, map[bareLink]chan struct{}{}
	}
	g.expected[name] = granted
	return granted
}

// forget is for a link that was perhaps never attached.
func (g *grants) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.expected, name)
}

// Write is for the one goroutine of the client that writes. It writes whole frames.
func (c *bareConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		c.grants.written(p)
	}
	return n, err
}

func (g *grants) written(p []byte) {
	for len(p) >= amqp.FrameHeaderSize {
		if string(p[:4]) == "AMQP" {
			p = p[len(amqp.ProtoAMQP):]
			continue
		}
		size := binary.BigEndian.Uint32(p)
		begin := 4 * uint32(p[4])
		if size < begin || begin < amqp.FrameHeaderSize || uint64(size) > uint64(len(p)) {
			return // no frame that the client writes
		}
		if p[5] == amqp.FrameAMQP && size > begin {
			g.frame(binary.BigEndian.Uint16(p[6:]), p[begin:size])
		}
		p = p[size:]
	}
}

// frame looks at one performative that was written.
func (g *grants) frame(channel uint16, body []byte) {
	r := amqp.NewReader(body)
	switch r.PeekDescriptor() {
	case amqp.CodeAttach, amqp.CodeFlow, amqp.CodeDetach, amqp.CodeEnd:
	default:
		return
	}
	performative, _, err := amqp.DecodePerformative(body)
	if err != nil {
		return // those who wait for it do so in bounded time
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch p := performative.(type) {
	case *amqp.Attach:
		if granted := g.expected[p.Name]; granted != nil {
			delete(g.expected, p.Name)
			g.links[bareLink{channel, p.Handle}] = granted
		}
	case *amqp.Flow:
		if granted := g.links[bareLink{channel, p.Handle}]; granted != nil && p.HasHandle && p.LinkCredit > 0 {
			select {
			case granted <- struct{}{}:
			default:
			}
		}
	case *amqp.Detach:
		delete(g.links, bareLink{channel, p.Handle})
	case *amqp.End:
		for l := range g.links {
			if l.channel == channel {
				delete(g.links, l)
			}
		}
	}
}
