// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"regexp"
	"testing"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// The frames of connections, sessions and links, as the service's traces show them and as the SDKs
// require them.

var opens = &amqp.Open{ContainerID: "raw"}

func TestTheHandshakeSaysWhatTheServiceSays(t *testing.T) {
	for frameSize, want := range map[uint32]uint32{0: 65536, 32768: 32768, 1 << 20: 65536} {
		t.Run(fmt.Sprint("max-frame-size ", frameSize), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
				r := rawOver(t, ns, &amqp.Open{ContainerID: "raw", MaxFrameSize: frameSize, ChannelMax: 65535})
				m, _ := await[*amqp.SASLMechanisms](r)
				if got := fmt.Sprint(m.Mechanisms); got != "[MSSBCBS PLAIN ANONYMOUS EXTERNAL]" {
					t.Errorf("mechanisms = %s, want the service's in its order", got)
				}
				o, _ := await[*amqp.SASLOutcome](r)
				if o.Code != amqp.SASLOK || string(o.AdditionalData) != "Welcome!" {
					t.Errorf("outcome = %d %q, want ok and Welcome!", o.Code, o.AdditionalData)
				}
				open, f := await[*amqp.Open](r)
				if !regexp.MustCompile(`^[0-9a-f]{32}_G\d+$`).MatchString(open.ContainerID) {
					t.Errorf("container-id = %q, want 32 digits and a number", open.ContainerID)
				}
				if host := f.fields(t)[1]; host[0] != null {
					t.Errorf("hostname = %x, want null", host)
				}
				if open.MaxFrameSize != want || open.ChannelMax != 4999 || open.IdleTimeout != 240_000 {
					t.Errorf("open = %s, want max-frame-size %d, channel-max 4999, idle-time-out 240000", amqp.Trace(open, 0), want)
				}
				if b, _ := await[*amqp.Begin](r); b.IncomingWindow != 5000 {
					t.Errorf("incoming-window = %d, want 5000", b.IncomingWindow)
				}
			})
		})
	}
}

// Python reads fields by their place, and fails where a list is cut short.
func TestFieldListsAreWhole(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		_, open := await[*amqp.Open](r)
		_, begin := await[*amqp.Begin](r)
		_, sender := r.attach(0, amqp.RoleSender, "q")
		_, receiver := r.attach(1, amqp.RoleReceiver, "q")
		_, refused := r.attach(2, amqp.RoleReceiver, "q/$nonsense")
		_, detach := await[*amqp.Detach](r)
		for _, c := range []struct {
			what string
			f    frame
			want int
		}{
			{"open", open, 10}, {"begin", begin, 8}, {"attach of a sender", sender, 14}, {"attach of a receiver", receiver, 14},
			{"attach that is refused", refused, 14}, {"detach", detach, 3},
		} {
			if got := len(c.f.fields(t)); got != c.want {
				t.Errorf("%s has %d fields, want %d", c.what, got, c.want)
			}
		}
	})
}

func TestAttachesAreAnsweredAsTheSDKsWantThem(t *testing.T) {
	large := broker.QueueConfig{Name: "large", MaxMessageSize: 100 << 20}
	bubble(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{large} }, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		handle := uint32(0)
		for _, address := range []string{"q", "q/$management", "large"} {
			for _, role := range []amqp.Role{amqp.RoleSender, amqp.RoleReceiver} {
				for snd := amqp.SndUnsettled; snd <= amqp.SndMixed; snd++ {
					for rcv := amqp.RcvFirst; rcv <= amqp.RcvSecond; rcv++ {
						what := fmt.Sprintf("%s as %v, modes %d and %d", address, role, snd, rcv)
						a, f := r.attach(handle, role, address, func(a *amqp.Attach) { a.SndSettleMode, a.RcvSettleMode = snd, rcv })
						want := rcv
						if role == amqp.RoleReceiver && snd == amqp.SndUnsettled && address != "q/$management" {
							want = amqp.RcvSecond
						}
						if a.SndSettleMode != snd || a.RcvSettleMode != want || a.Role == role {
							t.Errorf("%s: answered with %s", what, amqp.Trace(a, 0))
						}
						if a.Source == nil || a.Target == nil {
							t.Errorf("%s: answered without source or target", what)
						}
						if count := f.fields(t)[9]; role == amqp.RoleReceiver && count[0] == null {
							t.Errorf("%s: initial-delivery-count is null", what)
						}
						if role == amqp.RoleSender && a.MaxMessageSize == 0 {
							t.Errorf("%s: max-message-size is missing, want one", what)
						}
						handle++
					}
				}
			}
		}
		for address, want := range map[string][2]uint64{"q": {256 << 10, 0}, "large": {100 << 20, 1 << 20}} {
			r.backlog = nil // credit of the links before
			a, _ := r.attach(handle, amqp.RoleSender, address)
			handle++
			if got, _ := values(t, a.Properties)["com.microsoft:max-message-batch-size"].(uint64); a.MaxMessageSize != want[0] || got != want[1] {
				t.Errorf("%s: max-message-size %d, for batches %d; want %d", address, a.MaxMessageSize, got, want)
			}
			if f, _ := await[*amqp.Flow](r); f.LinkCredit != 1000 {
				t.Errorf("%s: link-credit = %d, want 1000 at once", address, f.LinkCredit)
			}
		}
	})
}

func TestABatchIsBoundedThoughMessagesMayBeLarge(t *testing.T) {
	large := broker.QueueConfig{Name: "q", MaxMessageSize: 3 << 20}
	bubble(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{large} }, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		message := amqp.AppendData(nil, make([]byte, 2<<20))
		r.sent(0, message)
		st, _ := r.transfer(0, amqp.BatchMessageFormat, amqp.AppendData(nil, message)).(*amqp.Rejected)
		if st == nil || st.Error == nil || st.Error.Condition != amqp.ErrCondLinkMessageSizeExceeded {
			t.Errorf("a batch of 2 MiB was answered with %v, want message-size-exceeded", st)
		}
	})
}

// Go answers a detach that does not close with not-implemented, and drops the
// connection over an error without a condition.
func TestEveryDetachClosesAndEveryErrorHasACondition(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = []broker.QueueConfig{{Name: "q"}, {Name: "closed", Status: broker.Disabled}, {Name: "sessions", RequiresSession: true}}
		c.AutoCreate = false
	}
	bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		handle := uint32(0)
		wantClosed := func(what string, want amqp.Symbol) {
			t.Helper()
			d, _ := await[*amqp.Detach](r)
			switch {
			case !d.Closed:
				t.Errorf("%s: detach does not close", what)
			case want == "" && d.Error != nil, want != "" && (d.Error == nil || d.Error.Condition != want || d.Error.Description == ""):
				t.Errorf("%s: detach with %v, want the condition %q", what, d.Error, want)
			}
			handle++
		}
		r.attach(handle, amqp.RoleReceiver, "q")
		r.send(&amqp.Detach{Handle: handle}, nil)
		wantClosed("a link that is suspended", "")
		for _, c := range []struct {
			address string
			role    amqp.Role
			want    amqp.Symbol
		}{
			{"none", amqp.RoleReceiver, amqp.ErrCondNotFound}, {"none", amqp.RoleSender, amqp.ErrCondNotFound},
			{"none/$management", amqp.RoleSender, amqp.ErrCondNotFound},
			{"closed", amqp.RoleReceiver, "com.microsoft:entity-disabled"}, {"closed", amqp.RoleSender, "com.microsoft:entity-disabled"},
			{"sessions", amqp.RoleReceiver, amqp.ErrCondNotAllowed}, {"q/$DeadLetterQueue", amqp.RoleSender, amqp.ErrCondNotAllowed},
		} {
			a, _ := r.attach(handle, c.role, c.address)
			if c.role == amqp.RoleReceiver && a.Source != nil || c.role == amqp.RoleSender && a.Target != nil {
				t.Errorf("%s as %v: the refusal has the terminus that was asked for", c.address, c.role)
			}
			wantClosed(fmt.Sprintf("%s as %v", c.address, c.role), c.want)
		}
		r.attach(handle, amqp.RoleReceiver, "q")
		if _, err := ns.Broker.Default().UpdateQueue(broker.QueueConfig{Name: "q", MaxDeliveryCount: 3}); err != nil {
			t.Fatal(err)
		}
		wantClosed("an update", amqp.ErrCondLinkDetachForced)
		r.attach(handle, amqp.RoleReceiver, "q")
		if err := ns.Broker.Default().DeleteQueue("q"); err != nil {
			t.Fatal(err)
		}
		wantClosed("a deletion", amqp.ErrCondNotFound)
	})
}
