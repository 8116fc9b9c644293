// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"overdue/internal/amqp"
)

// needsSASL reports whether a client has to come through SASL.
func (c *conn) needsSASL() bool { return c.cfg.Tokens != nil && c.cfg.Admit != nil }

// welcome lets the client choose a mechanism and checks its response. The SASL header has been
// read.
func (c *conn) welcome() error {
	s := &c.sides[client]
	s.putHeader(amqp.ProtoSASL)
	s.putSASL(&amqp.SASLMechanisms{Mechanisms: c.cfg.Mechanisms})
	s.in.SetMax(maxSASLFrame)
	p, err := s.readSASL()
	if err != nil {
		return err
	}
	init, ok := p.(*amqp.SASLInit)
	if !ok {
		return fmt.Errorf("SASL frame %T, want sasl-init", p)
	}
	if err := c.judgeSASL(init); err != nil {
		s.putSASL(&amqp.SASLOutcome{Code: amqp.SASLAuth})
		return fmt.Errorf("SASL %.64q: %w", init.Mechanism, err)
	}
	if !c.ownSession {
		c.saslInit = *init
	}
	if err := c.passPassword(init); err != nil {
		s.putSASL(&amqp.SASLOutcome{Code: amqp.SASLAuth})
		return err
	}
	s.putSASL(&amqp.SASLOutcome{Code: amqp.SASLOK, AdditionalData: []byte("Welcome!")})
	return nil
}

// passPassword has upstream check a name and a password, if the relay does not check them itself.
// A client that saw OK earlier would believe that they are right. The other mechanisms prove
// nothing; their clients put tokens over $cbs. For those, the relay dials upstream only after the
// client's open. An unreachable upstream is reported after the open as well: a client reconnects
// after a close, but not after a SASL outcome.
func (c *conn) passPassword(init *amqp.SASLInit) error {
	if c.ownSession || init.Mechanism != mechPlain {
		return nil
	}
	var refused *saslRefusal
	if errors.As(c.reachUpstream(), &refused) {
		return fmt.Errorf("SASL PLAIN: %w", refused)
	}
	return nil
}

// A saslRefusal is upstream's outcome of SASL, when it is not OK.
type saslRefusal struct{ code uint8 }

func (e *saslRefusal) Error() string {
	return fmt.Sprintf("the namespace refuses the credentials: SASL outcome %d", e.code)
}

// judgeSASL checks a client's password, if the relay checks passwords. The other mechanisms prove
// nothing yet; their clients put tokens.
func (c *conn) judgeSASL(init *amqp.SASLInit) error {
	switch {
	case !slices.Contains(c.cfg.Mechanisms, init.Mechanism):
		return errors.New("the mechanism is not offered")
	case init.Mechanism != mechPlain || c.auth.grants == nil:
		return nil
	}
	parts := bytes.Split(init.InitialResponse, []byte{0}) // authorization identity, authentication identity, password
	if len(parts) != 3 {
		return errors.New("the response is malformed")
	}
	return c.auth.grants.password(string(parts[1]), string(parts[2]))
}

const (
	mechPlain     amqp.Symbol = "PLAIN"
	mechAnonymous amqp.Symbol = "ANONYMOUS"
	mechMSSBCBS   amqp.Symbol = "MSSBCBS" // ANONYMOUS by the name that .NET looks for
)

// introduce does SASL with upstream: anonymously when the relay has tokens of its own, otherwise
// with the client's credentials.
func (c *conn) introduce() error {
	s := &c.sides[upstream]
	s.putHeader(amqp.ProtoSASL)
	proto, err := s.in.ReadProto()
	if err != nil {
		return s.readError(err)
	}
	if proto != amqp.ProtoSASL {
		return fmt.Errorf("protocol header % x, want SASL 1.0.0", proto)
	}
	s.in.SetMax(maxSASLFrame)
	p, err := s.readSASL()
	if err != nil {
		return err
	}
	offer, ok := p.(*amqp.SASLMechanisms)
	if !ok {
		return fmt.Errorf("SASL frame %T, want sasl-mechanisms", p)
	}
	init := amqp.SASLInit{Mechanism: mechAnonymous, InitialResponse: []byte("anonymous")}
	switch {
	// The client chose before upstream made its offer. A mechanism that proves nothing may be
	// replaced with ANONYMOUS; a password may not.
	case c.saslInit.Mechanism == mechPlain || slices.Contains(offer.Mechanisms, c.saslInit.Mechanism):
		init = c.saslInit
	case !slices.Contains(offer.Mechanisms, mechAnonymous):
		init.Mechanism = mechMSSBCBS
	}
	init.Hostname = c.cfg.Hostname
	if !slices.Contains(offer.Mechanisms, init.Mechanism) {
		return fmt.Errorf("SASL offers %q, want %s among them", offer.Mechanisms, init.Mechanism)
	}
	s.putSASL(&init)
	c.saslInit = amqp.SASLInit{} // it may hold a password
	if p, err = s.readSASL(); err != nil {
		return err
	}
	outcome, ok := p.(*amqp.SASLOutcome)
	if !ok {
		return fmt.Errorf("SASL frame %T, want sasl-outcome", p)
	}
	if outcome.Code != amqp.SASLOK {
		return &saslRefusal{outcome.Code}
	}
	return nil
}

// readSASL reads a SASL frame.
func (s *side) readSASL() (amqp.Performative, error) {
	f, err := s.in.Next()
	if err != nil {
		return nil, s.readError(err)
	}
	if f.Type != amqp.FrameSASL {
		return nil, fmt.Errorf("frame of type %d, want a SASL frame", f.Type)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		return nil, err
	}
	s.trace("in", 0, p, 0)
	return p, nil
}
