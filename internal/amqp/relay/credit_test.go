// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
	"overdue/internal/testing/racetest"
)

// linkState is what the last of these flows says of the link: its delivery-count and its credit.
func linkState(t *testing.T, flows []string) (count, credit uint32) {
	t.Helper()
	for _, flow := range flows {
		for _, word := range strings.Fields(flow) {
			if text, ok := strings.CutPrefix(word, "count="); ok {
				if _, err := fmt.Sscan(text, &count); err != nil {
					t.Fatalf("%s: %v", flow, err)
				}
			} else if text, ok := strings.CutPrefix(word, "credit="); ok {
				if _, err := fmt.Sscan(text, &credit); err != nil {
					t.Fatalf("%s: %v", flow, err)
				}
			}
		}
	}
	return count, credit
}

// A transfer that the relay refuses takes credit of its sender that upstream does not know of, and
// the relay renews it. So however many are refused, a sender may always send what upstream allows
// and no more, and the counts of both sides agree.
func TestCreditIsExactHoweverManyAreRefused(t *testing.T) {
	refused := &amqp.Error{Condition: "test:refused"}
	deliveries := uint32(racetest.Sized(2500, 1300)) // more than the link's credit
	for name, refuses := range map[string]func(id uint32) bool{
		"all":            func(uint32) bool { return true },
		"every second":   func(id uint32) bool { return id%2 == 1 },
		"many":           func(id uint32) bool { return id < deliveries*4/5 },
		"the first only": func(id uint32) bool { return id == 0 },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var id uint32
					var last *fakeHandler
					s := setup(t, watching(&fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
						switch {
						case !refuses(id):
							return nil, nil
						case !late:
							return nil, refused
						}
						last = newFakeHandler(d, true)
						return last, nil
					}}))
					p := s.peer()
					p.attachSender("s", 0, "orders")
					count, most := linkState(t, []string{p.expect("flow")})
					if count != 0 || most == 0 {
						t.Fatalf("the first flow says count %d and credit %d, want 0 and some", count, most)
					}
					credit := most
					for id = range deliveries {
						p.write(0, &amqp.Flow{IncomingWindow: 5000, OutgoingWindow: math.MaxInt32, NextOutgoingID: id, HasNextIncomingID: true}, nil)
						if !p.tryTransfer(0, id) {
							t.Fatalf("the connection ended at delivery %d", id)
						}
						synctest.Wait()
						if late && refuses(id) {
							last.ready(refused)
							synctest.Wait()
						}
						flows := p.flows()
						before := count + credit
						if len(flows) > 0 {
							count, credit = linkState(t, flows)
						}
						switch limit := count + credit; {
						case limit <= id || limit > id+1+most:
							t.Fatalf("after %d deliveries the sender may send up to %d, want more than it has and at most %d more", id+1, limit, most)
						case refuses(id) && limit != before+1:
							t.Fatalf("delivery %d was refused, and the sender may send up to %d where it was %d, want one more", id, limit, before)
						}
					}
					// Upstream gets the sender's count without the refused transfers, and answers in kind.
					p.write(0, &amqp.Flow{
						IncomingWindow: 5000, OutgoingWindow: math.MaxInt32, NextOutgoingID: id + 1, HasNextIncomingID: true,
						HasHandle: true, DeliveryCount: id + 1, HasDeliveryCount: true, LinkCredit: credit, HasLinkCredit: true, Echo: true,
					}, nil)
					synctest.Wait()
					if got, _ := linkState(t, p.flows()); got != id+1 {
						t.Errorf("the echo says count %d, want %d", got, id+1)
					}
				})
			})
		}
	}
}

// flows are those about links that have come.
func (p *peer) flows() (all []string) {
	for {
		select {
		case got, ok := <-p.got:
			if !ok {
				p.s.Fatal("the connection ended")
			}
			if strings.HasPrefix(got, "flow ") && strings.Contains(got, "handle=") {
				all = append(all, got)
			}
		default:
			return all
		}
	}
}
