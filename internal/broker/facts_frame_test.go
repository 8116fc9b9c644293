// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// The frames of the service as its posted wire traces show them, byte by byte where they do.

// next returns the next frame of any kind but keep-alives.
func (r *raw) next() frame {
	r.t.Helper()
	synctest.Wait()
	select {
	case f := <-r.in:
		return f
	default:
		r.t.Fatal("no frame came")
		return frame{}
	}
}

// wants checks the performative of the next frames, in their order. Spaces in hex do not count.
func (r *raw) wants(what string, hexes ...string) {
	r.t.Helper()
	for _, want := range hexes {
		f := r.next()
		got := hex.EncodeToString(f.body[:len(f.body)-len(f.payload)])
		if want = strings.ReplaceAll(want, " ", ""); got != want {
			r.t.Errorf("%s:\n got %s (%s)\nwant %s", what, got, amqp.Trace(f.Performative, len(f.payload)), want)
		}
	}
}

// begun opens a connection and a session, as a client does that limits its windows.
func begun(t *testing.T, ns *brokertest.Namespace) *raw {
	t.Helper()
	r := rawOver(t, ns, &amqp.Open{ContainerID: "raw", ChannelMax: 65535})
	await[*amqp.Open](r)
	r.backlog = nil
	return r
}

// asks is a link of a client that leaves out what it may, under a name of one letter.
func asks(name string, handle uint32, role amqp.Role, address string) *amqp.Attach {
	a := &amqp.Attach{
		Name: name, Handle: handle, Role: role, SndSettleMode: amqp.SndDefault, RcvSettleMode: amqp.RcvDefault,
		Source: &amqp.Source{}, Target: &amqp.Target{},
	}
	if role == amqp.RoleSender {
		a.Target = &amqp.Target{Address: address, HasAddress: true}
	} else {
		a.Source = &amqp.Source{Address: address, HasAddress: true}
	}
	return a
}

const (
	nothingOf11 = "40 40 40 40 40 40 40 40 40 40 40"
	nothingOf7  = "40 40 40 40 40 40 40"
	cbsSource   = "005328 c0110b a10424636273 40 40 40 40 40 40 40 40 40 40"
	cbsTarget   = "005329 c00d07 a10424636273 40 40 40 40 40 40"
	anySource   = "005328 c00c0b " + nothingOf11
	anyTarget   = "005329 c00807 " + nothingOf7
	unlimited   = "80ffffffffffffffff"
)

func TestATokenIsPutInTheFramesOfTheService(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		r.wants("begin", "005311 c01508 600000 5201 7000001388 70000003e8 52ff 404040")
		r.send(asks("s", 0, amqp.RoleSender, "$cbs"), nil)
		r.wants("attach of a sender, and its credit",
			"005312 c03a0e a10173 43 41 40 40"+anySource+cbsTarget+"40 40 40"+unlimited+"40 40 40",
			"005313 c0160b 43 7000001388 5201 70000003e8 43 43 5264 43 40 42 40")
		r.send(asks("r", 1, amqp.RoleReceiver, "$cbs"), nil)
		r.wants("attach of a receiver",
			"005312 c03b0e a10172 5201 42 40 40"+cbsSource+anyTarget+"40 40 43"+unlimited+"40 40 40")
		for i := range uint32(2) {
			r.send(putToken(t, i))
			r.wants("disposition of a request whose response has no credit yet", fmt.Sprintf("005315 c0%02x06 41 %s 40 41 00532445 40", 10+min(i, 1), small(i)))
			r.credit(1, i)
			f := r.next()
			want := fmt.Sprintf("005314c01%d0b5201%sa0040%d000000434042404040404", 2+min(i, 1), small(i), i+1) + "2"
			if got := hex.EncodeToString(f.body[:len(f.body)-len(f.payload)]); got != want {
				t.Errorf("response %d:\n got %s\nwant %s", i, got, want)
			}
			if got := hex.EncodeToString(f.payload); !strings.HasPrefix(got, "005373c0110d4040404040a1026964"+strings.Repeat("40", 7)) {
				t.Errorf("response %d begins with %.60s, want properties with the correlation-id alone", i, got)
			}
		}
	})
}

// A put-token as a client sends it, for a link that needs no token here.
func putToken(t *testing.T, id uint32) (*amqp.Transfer, []byte) {
	m := amqp.Message{
		Properties: encoded(t, amqp.List{"id", nil, nil, nil, "r"}),
		ApplicationProperties: encoded(t, amqp.Map{
			{Key: "operation", Value: "put-token"}, {Key: "type", Value: "jwt"}, {Key: "name", Value: "sb://host/q"},
		}),
		Body: amqp.AppendValueSection(nil, encoded(t, "token")),
	}
	return &amqp.Transfer{
		DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id)}, HasMessageFormat: true,
	}, m.Append(nil)
}

// azure-uamqp-c drops a response that comes before its request is accepted.
func TestARequestIsAcceptedBeforeItsResponse(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		for _, address := range []string{"$cbs", "q/$management"} {
			r := begun(t, ns)
			r.requester(0, address)
			r.send(&amqp.Flow{
				IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, HasDeliveryCount: true, LinkCredit: 50, HasLinkCredit: true,
			}, nil)
			for id := range uint32(50) {
				r.send(putToken(t, id))
			}
			synctest.Wait()
			accepted := uint32(0)
			for responses := uint32(0); responses < 50; {
				switch p := r.next().Performative.(type) {
				case *amqp.Disposition:
					accepted = p.Last + 1
				case *amqp.Transfer:
					if responses++; responses > accepted {
						t.Fatalf("%s: response %d came when %d requests were accepted", address, responses, accepted)
					}
				}
			}
		}
	})
}

// A request that is accepted and not answered counts against the credit, so that its client waits.
func TestRequestsWithoutAResponseHoldTheirCredit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		r.requester(0, "$cbs")
		r.backlog = nil
		for id := range uint32(100) {
			r.send(putToken(t, id))
			await[*amqp.Disposition](r)
		}
		synctest.Wait()
		if n := len(r.backlog) + len(r.in); n != 0 {
			t.Errorf("%d frames came besides the outcomes, want no credit", n)
		}
		r.send(&amqp.Flow{
			IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, HasDeliveryCount: true, LinkCredit: 100, HasLinkCredit: true,
		}, nil)
		synctest.Wait()
		credit := uint32(0)
		for len(r.in) > 0 {
			if f, ok := r.next().Performative.(*amqp.Flow); ok {
				credit = f.LinkCredit
			}
		}
		if credit < 91 {
			t.Errorf("after the responses, the credit is %d, want 100 or nearly so", credit)
		}
	})
}

func TestAResponseIsSettledWithAClientThatSettlesSecond(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		r.send(asks("s", 0, amqp.RoleSender, "$cbs"), nil)
		receiver := asks("r", 1, amqp.RoleReceiver, "$cbs")
		receiver.RcvSettleMode = amqp.RcvSecond
		r.send(receiver, nil)
		r.credit(1, 0)
		r.send(putToken(t, 0))
		await[*amqp.Disposition](r)
		await[*amqp.Transfer](r)
		r.send(&amqp.Disposition{Role: amqp.RoleReceiver, State: amqp.Accepted{}}, nil)
		if d, _ := await[*amqp.Disposition](r); d.Role != amqp.RoleSender || !d.Settled {
			t.Errorf("disposition = %s, want the response settled", amqp.Trace(d, 0))
		}
	})
}

// small is how a number of one digit is encoded.
func small(n uint32) string {
	if n == 0 {
		return "43"
	}
	return fmt.Sprintf("52%02x", n)
}

func TestMessagesPassInTheFramesOfTheService(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		r.wants("begin", "005311 c01508 600000 5201 7000001388 70000003e8 52ff 404040")
		r.send(asks("s", 0, amqp.RoleSender, "q"), nil)
		r.wants("attach of a sender, and its credit",
			"005312 c0370e a10173 43 41 40 40"+anySource+"005329 c00a07 a10171 40 40 40 40 40 40 40 40 40 80 0000000000040000 40 40 40",
			"005313 c0190b 43 7000001388 5201 70000003e8 43 43 70000003e8 43 40 42 40")
		r.send(&amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte("t"), HasMessageFormat: true}, amqp.AppendData(nil, []byte("x")))
		r.wants("disposition of a message", "005315 c00a06 41 43 40 41 00532445 40")

		r.send(asks("r", 1, amqp.RoleReceiver, "q"), nil)
		r.wants("attach of a receiver",
			"005312 c0380e a10172 5201 42 40 40 005328 c00e0b a10171 40 40 40 40 40 40 40 40 40 40"+anyTarget+"40 40 43"+unlimited+"40 40 40")
		r.credit(1, 0)
		f := r.next()
		got := hex.EncodeToString(f.body[:len(f.body)-len(f.payload)])
		if !regexp.MustCompile(`^005314c01e0b520143a010[0-9a-f]{32}4340424040404041$`).MatchString(got) {
			t.Errorf("transfer = %s, want a tag of 16 bytes, settled null and batchable", got)
		}
		r.send(&amqp.Disposition{Role: amqp.RoleReceiver, State: amqp.Accepted{}}, nil)
		r.wants("disposition of a message received", "005315 c00a06 42 43 40 41 00532445 40")
		r.send(&amqp.Flow{HasNextIncomingID: true, NextIncomingID: 2, IncomingWindow: 9, OutgoingWindow: 9, Echo: true}, nil)
		r.wants("flow of the session", "005313 c0130b 5201 7000001388 5202 5209 40 40 40 40 40 40 40")

		r.send(asks("n", 2, amqp.RoleReceiver, "q/$nothing"), nil)
		r.wants("attach that is refused", "005312 c0120e a1016e 5202 42 40 40 40 40 40 40 43 40 40 40 40")
		if d, ok := r.next().Performative.(*amqp.Detach); !ok || !d.Closed || d.Error == nil {
			t.Errorf("a refused attach is followed by %+v, want a detach with its error", d)
		}
	})
}

func TestTheSmallerMaxMessageSizeHolds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		for i, c := range []struct {
			address string
			role    amqp.Role
			asked   uint64
			want    uint64
		}{
			{"q", amqp.RoleSender, 0, 256 << 10},
			{"q", amqp.RoleSender, 1000, 1000},
			{"q", amqp.RoleSender, 1 << 40, 256 << 10},
			{"q/$management", amqp.RoleSender, 2000, 2000},
			{"q", amqp.RoleReceiver, 0, 1<<64 - 1},
			{"$cbs", amqp.RoleSender, 0, 1<<64 - 1},
			{"$cbs", amqp.RoleReceiver, 0, 1<<64 - 1},
		} {
			a := asks(fmt.Sprint(i), uint32(i), c.role, c.address)
			a.MaxMessageSize = c.asked
			r.send(a, nil)
			if got, _ := await[*amqp.Attach](r); got.MaxMessageSize != c.want {
				t.Errorf("%s as %v asks for %d: answered with %d, want %d", c.address, c.role, c.asked, got.MaxMessageSize, c.want)
			}
		}
	})
}

func TestALinkTooManyEndsItsSession(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		if b, _ := await[*amqp.Begin](r); b.HandleMax != 255 {
			t.Errorf("handle-max = %d, want 255", b.HandleMax)
		}
		for h := range uint32(256) {
			r.send(asks(fmt.Sprint(h), h, amqp.RoleReceiver, "q"), nil)
			if a, _ := await[*amqp.Attach](r); a.Source == nil {
				t.Fatalf("link %d was refused", h)
			}
		}
		r.send(asks("more", 256, amqp.RoleReceiver, "q"), nil)
		e, _ := await[*amqp.End](r)
		const want = "amqp:resource-limit-exceeded: Cannot allocate more handles to the current session or connection. " +
			"The maximum number of handles allowed is 255. Please free up resources and try again."
		if e.Error == nil || e.Error.Error() != want {
			t.Errorf("the session ends with %v, want %s", e.Error, want)
		}
		r.send(&amqp.End{}, nil)
		r.send(&amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 3}, nil)
		if b, _ := await[*amqp.Begin](r); b.HandleMax != 3 {
			t.Errorf("handle-max to a client that has 3 = %d, want 3", b.HandleMax)
		}
	})
}

func TestIdleLinksAndConnectionsEndInTheWordsOfTheService(t *testing.T) {
	configure := func(c *broker.Config) { c.LinkIdleTimeout, c.ConnectionIdleTimeout = 10*time.Minute, 5*time.Minute }
	const tail = `, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`
	bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		began := time.Now()
		r.send(asks("s", 0, amqp.RoleSender, "$cbs"), nil)
		r.send(asks("r", 1, amqp.RoleReceiver, "$cbs"), nil)
		r.send(asks("sender", 2, amqp.RoleSender, "q"), nil)
		r.send(asks("receiver", 3, amqp.RoleReceiver, "q"), nil)
		for range 2 {
			time.Sleep(4 * time.Minute)
			r.write(amqp.AppendFrame(nil, 0, nil, nil)) // a keep-alive, which makes no link busy
		}
		ends := map[uint32]string{}
		for range 2 {
			d, _ := await[*amqp.Detach](r)
			ends[d.Handle] = d.Error.Error()
			r.send(&amqp.Detach{Handle: d.Handle, Closed: true}, nil)
		}
		if took := time.Since(began); took != 10*time.Minute {
			t.Errorf("the links were detached after %v, want 10m", took)
		}
		for handle, want := range map[uint32]string{
			2: `^amqp:link:detach-forced: The link '(G0:\d+:sender)' is force detached\. Code: publisher\(link\d+\)\. ` +
				`Details: AmqpMessagePublisher\.IdleTimerExpired: Idle timeout: 00:10:00\. TrackingId:[0-9a-f]{32}_G0, SystemTracker:G0:\d+:sender` + tail,
			3: `^amqp:link:detach-forced: The link '(G0:\d+:receiver)' is force detached\. Code: consumer\(link\d+\)\. ` +
				`Details: AmqpMessageConsumer\.IdleTimerExpired: Idle timeout: 00:10:00\. TrackingId:[0-9a-f]{32}_G0, SystemTracker:G0:\d+:receiver` + tail,
		} {
			if !regexp.MustCompile(want).MatchString(ends[handle]) {
				t.Errorf("the link was detached with\n%s, want\n%s", ends[handle], want)
			}
		}
		// The links to $cbs stay, and do not keep the connection.
		for handle := range uint32(2) {
			if d, _ := await[*amqp.Detach](r); d.Handle != handle || !d.Closed || d.Error == nil || d.Error.Condition != amqp.ErrCondConnectionForced {
				t.Errorf("before the close came %s, want link %d detached with amqp:connection:forced", amqp.Trace(d, 0), handle)
			}
		}
		if took := time.Since(began); took != 15*time.Minute {
			t.Errorf("the connection was closed after %v, want 15m", took)
		}
		c, _ := await[*amqp.Close](r)
		want := `^amqp:connection:forced: The connection was closed by container '([0-9a-f]{32}_G0)' because it did not have any active links ` +
			`in the past 300000 milliseconds\. TrackingId:[0-9a-f]{32}_G0, SystemTracker:gateway0` + tail
		if !regexp.MustCompile(want).MatchString(c.Error.Error()) {
			t.Errorf("the connection was closed with\n%v, want\n%s", c.Error, want)
		}
	})
}

func TestAQuietSessionIsAskedForItsState(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := begun(t, ns)
		await[*amqp.Begin](r)
		for range 2 {
			began := time.Now()
			await[*amqp.Flow](r)
			if took := time.Since(began); took != 3*time.Minute {
				t.Errorf("a flow came after %v, want 3m", took)
			}
		}
		time.Sleep(time.Minute)
		r.send(&amqp.Flow{HasNextIncomingID: true, NextIncomingID: 1, IncomingWindow: 7, OutgoingWindow: 9}, nil)
		time.Sleep(3*time.Minute - time.Nanosecond)
		synctest.Wait()
		if n := len(r.in); n != 0 {
			t.Errorf("%d frames came within three minutes of a flow", n)
		}
		time.Sleep(time.Nanosecond)
		r.wants("flow of a quiet session", "005313 c0120b 43 7000001388 5201 5207 40 40 40 40 40 41 40")
	})
}
