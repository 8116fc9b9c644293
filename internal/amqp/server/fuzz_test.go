// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// FuzzConnection feeds bytes to a connection that is open and has a session with a link of each
// kind. The server survives any bytes, the connection ends when the peer hangs up, and the handler
// learns of it.
func FuzzConnection(f *testing.F) {
	frame := func(p amqp.Performative, payload string) []byte { return amqp.AppendFrame(nil, 0, p, []byte(payload)) }
	more := message(0, 1)
	more.More = true
	drain := linkFlow(1, 0, 10)
	drain.Drain, drain.Echo = true, true
	for _, seed := range [][]byte{
		frame(message(0, 0), "hello"),
		append(frame(more, "hel"), frame(&amqp.Transfer{Handle: 0}, "lo")...),
		append(frame(more, "hel"), frame(&amqp.Transfer{Handle: 0, Aborted: true}, "")...),
		frame(drain, ""),
		append(frame(linkFlow(1, 0, 2), ""), frame(&amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: 1<<32 - 1, Settled: true, State: amqp.Released{}}, "")...),
		frame(&amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: 1, State: &amqp.Modified{UndeliverableHere: true}}, ""),
		frame(rawAttach(2, amqp.RoleReceiver, "defer"), ""),
		append(frame(rawAttach(2, amqp.RoleSender, "refuse"), ""), frame(&amqp.Detach{Handle: 2, Closed: true}, "")...),
		append(frame(&amqp.Detach{Handle: 0, Closed: true}, ""), frame(&amqp.End{}, "")...),
		frame(&amqp.Close{Error: &amqp.Error{Condition: "x"}}, ""),
		{0, 0, 0, 8, 2, 0, 0, 0},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &echo{}
		q := e.queue("q")
		for range 5 {
			q.put([]byte("message"))
		}
		srv := New(Config{Handler: e, CloseTimeout: time.Millisecond, MaxLinks: 10, MaxUnsettled: 5, IncomingWindow: 5, MaxMessageSize: 100})
		client, server := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- srv.ServeConn(server) }()
		go func() {
			_, _ = io.Copy(io.Discard, client) // what it says does not matter
		}()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "fuzz", MaxFrameSize: 65536}, nil)
		b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 10, HandleMax: 10}, nil)
		b = amqp.AppendFrame(b, 0, rawAttach(0, amqp.RoleSender, "q"), nil)
		b = amqp.AppendFrame(b, 0, rawAttach(1, amqp.RoleReceiver, "q"), nil)
		_, _ = client.Write(append(b, data...)) // the server may close before it has read all
		client.Close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("connection does not end after its peer hung up")
		}
		e.wg.Wait()
		closed := func(note string) bool { return has(note, "closed:") }
		if notes := e.notes(); !slices.ContainsFunc(notes, closed) {
			t.Errorf("handler calls %q, want closed too", notes)
		}
	})
}
