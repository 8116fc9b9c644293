// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"strings"

	"overdue/internal/amqp"
)

// A naming puts the host and the name by which a client knows the namespace into what upstream
// says, where it has its own. nil: both are the same.
type naming struct{ names *strings.Replacer }

// newNaming translates from the host behind the relay to the host that the client has stated.
func newNaming(behind, stated string) *naming {
	if host, _, err := net.SplitHostPort(stated); err == nil {
		stated = host
	}
	if stated == "" || stated == behind {
		return nil
	}
	theirs, _, _ := strings.Cut(behind, ".")
	own, _, _ := strings.Cut(stated, ".")
	pairs := []string{behind, stated}
	for _, form := range []string{"NAME:Queue:", "NAME:Topic:", "namespace NAME "} {
		pairs = append(pairs, strings.Replace(form, "NAME", theirs, 1), strings.Replace(form, "NAME", own, 1))
	}
	return &naming{strings.NewReplacer(pairs...)}
}

// frame translates the error in a frame to the client. The frame is the caller's, and its error is
// not.
func (n *naming) frame(p amqp.Performative) {
	switch p := p.(type) {
	case *amqp.Detach:
		p.Error = n.error(p.Error)
	case *amqp.End:
		p.Error = n.error(p.Error)
	case *amqp.Disposition:
		if rejected, ok := p.State.(*amqp.Rejected); ok && rejected.Error != nil {
			p.State = &amqp.Rejected{Error: n.error(rejected.Error)}
		}
	}
}

func (n *naming) error(e *amqp.Error) *amqp.Error {
	if e == nil {
		return nil
	}
	own := *e
	own.Description = n.names.Replace(e.Description)
	return &own
}

// response translates the description of a management node's response that states a failure. All
// else in it stays byte for byte.
func (n *naming) response(payload []byte) []byte {
	if n == nil {
		return payload
	}
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		return payload
	}
	res := readResponse(&m)
	if own := n.names.Replace(res.description); !res.succeeded() && own != res.description {
		m.ApplicationProperties = withDescription(m.ApplicationProperties, own)
		return m.Append(nil)
	}
	return payload
}

// withDescription replaces the description among the properties of a response.
func withDescription(properties amqp.Raw, description string) amqp.Raw {
	r := amqp.NewReader(properties)
	pairs, n := r.Map()
	b, start := amqp.BeginMap(nil)
	for range n {
		name, value := pairs.Raw(), pairs.Raw()
		b = amqp.AppendRaw(b, name)
		switch key := amqp.NewReader(name); key.String() {
		case "status-description", "statusDescription":
			b = amqp.AppendString(b, description)
		default:
			b = amqp.AppendRaw(b, value)
		}
	}
	return amqp.EndMap(b, start, n)
}
