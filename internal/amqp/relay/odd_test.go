// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

// came is what has come of these kinds since the last call.
func (p *peer) came(names ...string) (all []string) {
	time.Sleep(time.Second)
	synctest.Wait()
	for {
		select {
		case got, ok := <-p.got:
			if !ok {
				return append(all, "the end of the connection")
			}
			if name, _, _ := strings.Cut(got, " "); slices.Contains(names, name) {
				all = append(all, got)
			}
		default:
			return all
		}
	}
}

// AMQP allows some things that no SDK does: deliveries that are given up halfway, links that come
// back with deliveries that they have not settled. The client gets the broker's own answer, and the
// queue holds the same messages, whether the link is watched or not.
func TestOddDeliveriesEndAsWithoutTheRelay(t *testing.T) {
	data := func(text string) []byte { return amqp.AppendData(nil, []byte(text)) }
	transfer := func(p *peer, id uint32, text string, change func(*amqp.Transfer)) {
		t := &amqp.Transfer{HasDeliveryID: true, DeliveryID: id, DeliveryTag: fmt.Appendf(nil, "tag-%d", id)}
		change(t)
		p.write(0, t, data(text))
	}
	plain := func(*amqp.Transfer) {}
	unsettled := func(ids ...int) amqp.Raw {
		m, start := amqp.BeginMap(nil)
		for _, id := range ids {
			m = amqp.AppendRaw(amqp.AppendBinary(m, fmt.Appendf(nil, "tag-%d", id)), nil)
		}
		return amqp.EndMap(m, start, 2*len(ids))
	}
	said := []string{"disposition", "detach", "end", "close", "transfer"}
	for name, act := range map[string]func(p *peer) []string{
		"given up after a frame": func(p *peer) []string {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			transfer(p, 0, "half", func(t *amqp.Transfer) { t.More = true })
			transfer(p, 0, "", func(t *amqp.Transfer) { t.Aborted = true })
			transfer(p, 1, "whole", plain)
			return p.came(said...)
		},
		"given up with its first frame": func(p *peer) []string {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			transfer(p, 0, "never", func(t *amqp.Transfer) { t.Aborted = true })
			transfer(p, 1, "whole", plain)
			return p.came(said...)
		},
		"a sender that comes back and repeats": func(p *peer) []string {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			transfer(p, 0, "first", func(t *amqp.Transfer) { t.More = true })
			p.write(0, &amqp.Detach{Handle: 0}, nil)
			all := p.came("disposition")
			p.write(0, &amqp.Attach{
				Name: "s", Handle: 0, Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true}, Unsettled: unsettled(0),
			}, nil)
			p.expect("attach")
			transfer(p, 1, "first", func(t *amqp.Transfer) { t.DeliveryTag = []byte("tag-0") })
			return append(all, p.came(said...)...)
		},
		"a receiver that comes back and settles": func(p *peer) []string {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			transfer(p, 0, "whole", plain)
			p.expect("disposition")
			receiver := func() {
				p.write(0, &amqp.Attach{
					Name: "r", Handle: 1, Role: amqp.RoleReceiver, Source: &amqp.Source{Address: "orders", HasAddress: true}, Target: &amqp.Target{},
				}, nil)
				p.expect("attach")
			}
			receiver()
			p.write(0, &amqp.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, HasLinkCredit: true, LinkCredit: 1, HasDeliveryCount: true}, nil)
			p.expect("transfer")
			p.write(0, &amqp.Detach{Handle: 1}, nil)
			p.came()
			receiver()
			p.write(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, State: amqp.Accepted{}}, nil)
			return p.came(said...)
		},
		"a receiver that settles when its link is gone": func(p *peer) []string {
			p.attachSender("s", 0, "orders")
			p.expect("flow")
			transfer(p, 0, "whole", plain)
			p.expect("disposition")
			p.write(0, &amqp.Attach{
				Name: "r", Handle: 1, Role: amqp.RoleReceiver, Source: &amqp.Source{Address: "orders", HasAddress: true}, Target: &amqp.Target{},
			}, nil)
			p.expect("attach")
			p.write(0, &amqp.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, HasLinkCredit: true, LinkCredit: 1, HasDeliveryCount: true}, nil)
			p.expect("transfer")
			p.write(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
			p.came()
			p.write(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, State: amqp.Accepted{}, Settled: true}, nil)
			return p.came(said...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			type result struct{ Said, Waiting []string }
			results := map[string]result{}
			for _, way := range []string{"direct", "through the relay", "watched"} {
				synctest.Test(t, func(t *testing.T) {
					configure := func(*Config) {}
					watched := 0
					if way == "watched" {
						configure = watching(&fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) {
							watched++
							return nil, nil
						}})
					}
					s := setup(t, configure)
					dial := s.dial
					if way == "direct" {
						dial = func(ctx context.Context) (net.Conn, error) { return s.ns.Dial(ctx) }
					}
					p := s.peerAt(dial)
					all := act(p)
					results[way] = result{all, s.waiting()}
					if way == "watched" && watched != 1 {
						t.Errorf("%d deliveries were watched, want the one that was whole", watched)
					}
				})
			}
			t.Logf("%+v", results["direct"])
			for _, way := range []string{"through the relay", "watched"} {
				if diff := cmp.Diff(results["direct"], results[way]); diff != "" {
					t.Errorf("%s (-direct +%s):\n%s", name, way, diff)
				}
			}
		})
	}
}
