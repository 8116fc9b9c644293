// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/binary"
	"fmt"
	"net"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// A wire is a connection that speaks AMQP frame by frame.
type wire struct {
	nc   net.Conn
	in   *amqp.FrameReader
	sent uint32
}

// open begins a session on channel 0.
func (w *wire) open() error {
	key := brokertest.Key()
	b := append([]byte(nil), amqp.ProtoSASL[:]...)
	b = amqp.AppendSASLFrame(b, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + key.KeyName + "\x00" + key.PrimaryKey), Hostname: endpointName})
	b = append(b, amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "wire", Hostname: endpointName}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
	if _, err := w.nc.Write(b); err != nil {
		return err
	}
	if _, err := w.in.ReadProto(); err != nil {
		return err
	}
	for { // mechanisms, outcome
		f, err := w.in.Next()
		if err != nil {
			return err
		}
		if p, _, err := amqp.DecodePerformative(f.Body); err != nil {
			return err
		} else if _, over := p.(*amqp.SASLOutcome); over {
			break
		}
	}
	if _, err := w.in.ReadProto(); err != nil {
		return err
	}
	_, err := w.await(func(p amqp.Performative) bool { _, ok := p.(*amqp.Begin); return ok })
	return err
}

// await returns the next frame that fits. The end of anything is an error.
func (w *wire) await(fits func(amqp.Performative) bool) (amqp.Performative, error) {
	for {
		f, err := w.in.Next()
		if err != nil {
			return nil, err
		}
		if len(f.Body) == 0 {
			continue
		}
		p, _, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			return nil, err
		}
		switch p := p.(type) {
		case *amqp.Detach:
			return nil, fmt.Errorf("detach: %w", p.Error)
		case *amqp.End:
			return nil, fmt.Errorf("end: %w", p.Error)
		case *amqp.Close:
			return nil, fmt.Errorf("close: %w", p.Error)
		}
		if fits(p) {
			return p, nil
		}
	}
}

// attach attaches a link and waits for its credit.
func (w *wire) attach(handle uint32, attach *amqp.Attach) error {
	attach.Handle = handle
	if _, err := w.nc.Write(amqp.AppendFrame(nil, 0, attach, nil)); err != nil {
		return err
	}
	_, err := w.await(func(p amqp.Performative) bool {
		f, ok := p.(*amqp.Flow)
		return ok && f.HasHandle && f.LinkCredit > 0
	})
	return err
}

// transfer sends a message and returns its outcome.
func (w *wire) transfer(handle uint32, state amqp.DeliveryState, payload []byte) (amqp.DeliveryState, error) {
	id := w.sent
	w.sent++
	var b []byte
	for first := true; first || len(payload) > 0; first = false {
		t := &amqp.Transfer{Handle: handle, State: state}
		if first {
			t.DeliveryID, t.HasDeliveryID, t.DeliveryTag, t.HasMessageFormat = id, true, binary.BigEndian.AppendUint32(nil, id), true
		}
		piece := payload[:min(len(payload), 400)] // fits the smallest frames
		payload = payload[len(piece):]
		t.More = len(payload) > 0
		b = amqp.AppendFrame(b, 0, t, piece)
	}
	if _, err := w.nc.Write(b); err != nil {
		return nil, err
	}
	p, err := w.await(func(p amqp.Performative) bool {
		d, ok := p.(*amqp.Disposition)
		return ok && d.Role == amqp.RoleReceiver && d.First <= id && id <= d.Last
	})
	if err != nil {
		return nil, err
	}
	return p.(*amqp.Disposition).State, nil
}
