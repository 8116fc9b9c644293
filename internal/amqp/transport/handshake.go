// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"slices"

	"overdue/internal/amqp"
)

const (
	maxSASLFrame   = 4096 // bytes; the spec says 512, initial responses with tokens are longer
	minIdleTimeout = 100  // milliseconds; less would cause little but keep-alives
)

// SASL mechanisms.
const (
	Plain     amqp.Symbol = "PLAIN"
	Anonymous amqp.Symbol = "ANONYMOUS"
)

// SASLRefusal is the peer's outcome of SASL, when it is not OK.
type SASLRefusal struct{ Code uint8 }

func (e *SASLRefusal) Error() string {
	return fmt.Sprintf("SASL is refused: outcome %d", e.Code)
}

// Welcome takes a client from its first byte to its open, which ReadOpen reads. judge accepts its
// choice of mechanisms, with the text of the outcome. required says that the client has to come
// through SASL.
func (c *Conn) Welcome(mechanisms []amqp.Symbol, required bool, judge func(*amqp.SASLInit) (welcome string, err error)) error {
	header, err := c.readHeader()
	switch {
	case err != nil:
		return err
	case header == amqp.ProtoAMQP && !required:
	case header != amqp.ProtoSASL:
		// Part 2 section 2.2: send the supported header, then close.
		c.putHeader(amqp.ProtoSASL)
		return fmt.Errorf("protocol header % x, want SASL 1.0.0", header)
	default:
		if err := c.judge(mechanisms, judge); err != nil {
			return err
		}
		if header, err = c.readHeader(); err != nil {
			return err
		}
	}
	c.putHeader(amqp.ProtoAMQP)
	if header != amqp.ProtoAMQP {
		return fmt.Errorf("protocol header % x after SASL, want AMQP 1.0.0", header)
	}
	return nil
}

// judge lets the client choose a mechanism. The SASL header has been read.
func (c *Conn) judge(mechanisms []amqp.Symbol, judge func(*amqp.SASLInit) (string, error)) error {
	c.putHeader(amqp.ProtoSASL)
	c.putSASL(&amqp.SASLMechanisms{Mechanisms: mechanisms})
	init, err := readSASL[*amqp.SASLInit](c)
	if err != nil {
		return err
	}
	var welcome string
	if slices.Contains(mechanisms, init.Mechanism) {
		welcome, err = judge(init)
	} else {
		err = errors.New("the mechanism is not offered")
	}
	if err != nil {
		c.putSASL(&amqp.SASLOutcome{Code: amqp.SASLAuth})
		return fmt.Errorf("SASL %.64q: %w", init.Mechanism, err)
	}
	outcome := &amqp.SASLOutcome{Code: amqp.SASLOK}
	if welcome != "" {
		outcome.AdditionalData = []byte(welcome)
	}
	c.putSASL(outcome)
	return nil
}

// Introduce does SASL with a server; choose gets its offer.
func (c *Conn) Introduce(choose func(offer []amqp.Symbol) *amqp.SASLInit) error {
	if err := c.exchange(amqp.ProtoSASL); err != nil {
		return err
	}
	offer, err := readSASL[*amqp.SASLMechanisms](c)
	if err != nil {
		return err
	}
	init := choose(offer.Mechanisms)
	if !slices.Contains(offer.Mechanisms, init.Mechanism) {
		return fmt.Errorf("the peer does not offer SASL %s, but %q", init.Mechanism, offer.Mechanisms)
	}
	c.putSASL(init)
	outcome, err := readSASL[*amqp.SASLOutcome](c)
	if err != nil {
		return err
	}
	if outcome.Code != amqp.SASLOK {
		return &SASLRefusal{outcome.Code}
	}
	return nil
}

// Open exchanges headers and opens with a server.
func (c *Conn) Open(o *amqp.Open) error {
	c.putHeader(amqp.ProtoAMQP)
	c.owner.Lock()
	c.MaxFrame = amqp.DefaultMaxFrameSize // what the peer takes is not known yet
	c.Put(0, o)
	c.owner.Unlock()
	if err := c.expect(amqp.ProtoAMQP); err != nil {
		return err
	}
	return c.ReadOpen()
}

// ReadOpen reads the peer's open.
func (c *Conn) ReadOpen() error {
	f, err := c.in.Next()
	if err != nil {
		return c.explain(err)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return err
	}
	if f.Type != amqp.FrameAMQP {
		return amqp.Errorf(amqp.ErrCondConnectionFramingError, "Frame of type %d in place of open.", f.Type)
	}
	c.owner.Trace("in", f.Channel, p, 0)
	if cl, ok := p.(*amqp.Close); ok {
		return &PeerClosed{cl.Error}
	}
	open, ok := p.(*amqp.Open)
	switch {
	case !ok:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "The first frame is %T and must be open.", p)
	case open.MaxFrameSize < amqp.MinMaxFrameSize:
		return amqp.Errorf(amqp.ErrCondInvalidField, "max-frame-size is %d and must be at least %d.", open.MaxFrameSize, amqp.MinMaxFrameSize)
	case open.IdleTimeout > 0 && open.IdleTimeout < minIdleTimeout:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "idle-time-out is %d ms and must be at least %d ms.", open.IdleTimeout, minIdleTimeout)
	}
	c.owner.Lock()
	defer c.owner.Unlock()
	c.Peer = open
	return nil
}

// exchange sends a protocol header and reads the same.
func (c *Conn) exchange(header [8]byte) error {
	c.putHeader(header)
	return c.expect(header)
}

func (c *Conn) expect(want [8]byte) error {
	header, err := c.readHeader()
	if err == nil && header != want {
		return fmt.Errorf("protocol header % x, want % x", header, want)
	}
	return err
}

func (c *Conn) readHeader() ([8]byte, error) {
	header, err := c.in.ReadProto()
	if err != nil {
		return header, c.explain(err)
	}
	return header, nil
}

// readSASL reads a SASL frame of one kind.
func readSASL[P amqp.Performative](c *Conn) (p P, err error) {
	c.in.SetMax(maxSASLFrame)
	defer c.in.SetMax(c.cfg.MaxFrameSize)
	f, err := c.in.Next()
	if err != nil {
		return p, c.explain(err)
	}
	if f.Type != amqp.FrameSASL {
		return p, fmt.Errorf("frame of type %d, want a SASL frame", f.Type)
	}
	any, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return p, err
	}
	c.owner.Trace("in", 0, any, 0)
	p, ok := any.(P)
	if !ok {
		return p, fmt.Errorf("SASL frame %T, want %T", any, p)
	}
	return p, nil
}

func (c *Conn) putHeader(header [8]byte) {
	c.putBytes(func(b []byte) []byte { return append(b, header[:]...) })
}

func (c *Conn) putSASL(p amqp.Performative) {
	c.putBytes(func(b []byte) []byte { return amqp.AppendSASLFrame(b, p) })
	c.owner.Trace("out", 0, p, 0)
}

func (c *Conn) putBytes(appendTo func([]byte) []byte) {
	c.owner.Lock()
	defer c.owner.Unlock()
	out := c.buffer()
	out.b = appendTo(out.b)
	c.Signal()
}
