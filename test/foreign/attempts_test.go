// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	goamqp "github.com/Azure/go-amqp"
)

// breakOff forwards to an address, and ends the first n connections after a few hundred bytes from
// there, as a process that is killed does.
func breakOff(t *testing.T, to string, n int32) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var seen atomic.Int32
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // the test has ended
			}
			broker, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			var answers io.Reader = broker
			if seen.Add(1) <= n {
				answers = io.LimitReader(broker, 300)
			}
			go func() {
				_, _ = io.Copy(broker, client)
				_ = broker.Close()
			}()
			go func() {
				_, _ = io.Copy(client, answers)
				_ = client.Close()
				_ = broker.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

func sendAndReceive(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	v.must(v.sender(s, v.queue("one"), nil).Send(v.ctx, goamqp.NewMessage([]byte("body")), nil))
	r := v.receiver(s, v.queue("one"), &goamqp.ReceiverOptions{Credit: 1})
	m := v.receive(r)
	v.note("got %s", m.GetData())
	v.must(r.AcceptMessage(v.ctx, m))
	v.leave(conn)
}

func TestBrokerThatBreaksOffIsNotHeldAgainstTheRelay(t *testing.T) {
	if testing.Short() {
		t.Skip("needs proton; not with -short")
	}
	b := proton(t)
	b.addr = breakOff(t, b.addr, brokerAttempts-1)
	compare(t, b, alone(), sendAndReceive)
}

func TestRelayThatBreaksOffIsNotExcused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs proton; not with -short")
	}
	b := proton(t)
	through := func(t *testing.T, to string) string { return breakOff(t, to, 1) }
	differences, brokerFailed := compareOnce(t, b, through, sendAndReceive, 1)
	if len(differences) == 0 || brokerFailed {
		t.Errorf("differences %q, broker failed %v; want some, and false", differences, brokerFailed)
	}
}
