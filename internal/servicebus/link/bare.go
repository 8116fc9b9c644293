// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net"
	"strings"

	"overdue/internal/amqp"
)

const (
	// linkPrefix begins the names of all other links.
	linkPrefix = "overdue-"
	// barePrefix begins the names of links over which messages come bare.
	barePrefix = "overdue-bare-"
	// maxHead bounds what of a message is kept until its last frame has come. All that is looked for
	// stands in front of the body, where Service Bus allows 64 KiB ("Azure Service Bus quotas").
	maxHead = 256 << 10
)

// What is left of a bare message, besides its header.
var (
	bareAnnotations = []string{"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"}
	bareProperties  = []string{"overdue-deadline", "overdue-within", "ce-expirytime"}
)

// bareConn is a connection from which the AMQP client reads messages bare, over the links whose
// names ask for it: without what it might not be able to decode. The client ends the connection
// over a decimal or a map with numbers for keys, and with it the chance to give the message back:
// that would cost the message a delivery, and all others of the connection their locks.
//
// It changes nothing but the payload of transfers. A message of many frames has as many afterwards,
// the first ones empty, so that both sides count the same.
type bareConn struct {
	framed
	links map[bareLink]*bareMessage

	grants grants
}

// bareLink is a link as the peer numbers it.
type bareLink struct {
	channel uint16
	handle  uint32
}

// bareMessage is the head of a message whose last frame has not come.
type bareMessage struct{ head []byte }

func newBareConn(nc net.Conn) *bareConn {
	c := &bareConn{links: map[bareLink]*bareMessage{}}
	c.framed = framed{Conn: nc, filter: c.filter}
	return c
}

// filter says how much of a frame, whose body begins at begin, the client gets, and what after it.
func (c *bareConn) filter(frame []byte, begin int) (keep int, payload []byte) {
	body := frame[begin:]
	channel := binary.BigEndian.Uint16(frame[6:])
	r := amqp.NewReader(body)
	switch code := r.PeekDescriptor(); {
	case code != amqp.CodeAttach && code != amqp.CodeDetach && code != amqp.CodeEnd && (code != amqp.CodeTransfer || len(c.links) == 0):
		return len(frame), nil
	}
	p, rest, err := amqp.DecodePerformative(body)
	if err != nil {
		return len(frame), nil // the client has to see it
	}
	switch p := p.(type) {
	case *amqp.Attach:
		if strings.HasPrefix(p.Name, barePrefix) && p.Role == amqp.RoleSender {
			c.links[bareLink{channel, p.Handle}] = &bareMessage{}
		}
	case *amqp.Detach:
		delete(c.links, bareLink{channel, p.Handle})
	case *amqp.End:
		for l := range c.links {
			if l.channel == channel {
				delete(c.links, l)
			}
		}
	case *amqp.Transfer:
		m := c.links[bareLink{channel, p.Handle}]
		if m == nil {
			break
		}
		m.head = append(m.head, rest[:min(len(rest), maxHead-len(m.head))]...)
		keep = len(frame) - len(rest)
		if p.Aborted {
			m.head = nil
		} else if !p.More {
			payload, m.head = bare(m.head), nil
		}
		return keep, payload
	}
	return len(frame), nil
}

// bare is the message that begins with head, without all that the monitor does not need to get past
// it. What cannot be read is left out: the client gets a message all the same, and gives it back.
func bare(head []byte) (out []byte) {
	r := amqp.NewReader(head)
	for r.Err() == nil && !r.Done() {
		section := r.Rest()
		code := r.Descriptor()
		value := r.Raw()
		if r.Err() != nil || code > amqp.CodeApplicationProperties {
			break
		}
		switch code {
		case amqp.CodeHeader:
			out = append(out, section[:len(section)-r.Len()]...)
		case amqp.CodeMessageAnnotations:
			out = appendPicked(out, code, value, bareAnnotations, true)
		case amqp.CodeApplicationProperties:
			out = appendPicked(out, code, value, bareProperties, false)
		}
	}
	return out
}

// appendPicked appends a section with those of the entries of a map that have these keys, and
// simple values.
func appendPicked(out []byte, code uint64, entries amqp.Raw, keys []string, symbols bool) []byte {
	out, start := amqp.BeginMap(amqp.AppendDescriptor(out, code))
	pairs := 0
	for _, key := range keys {
		r, ok := amqp.MapLookup(entries, key)
		if !ok {
			continue
		}
		v := r.Value()
		if r.Err() != nil {
			continue
		}
		switch v.(type) {
		case int64, string, amqp.Timestamp:
		default:
			continue
		}
		if symbols {
			out = amqp.AppendSymbol(out, amqp.Symbol(key))
		} else {
			out = amqp.AppendString(out, key)
		}
		value, err := amqp.AppendValue(out, v)
		if err != nil { // of no type that stands above
			value = amqp.AppendNull(out)
		}
		out = value
		pairs++
	}
	return amqp.EndMap(out, start, pairs)
}
