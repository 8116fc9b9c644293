// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

func TestDurableRatiosAreOfOneRound(t *testing.T) {
	var rounds []*brokerRound
	for _, rates := range [][2]float64{{100, 50}, {1000, 300}, {10, 4}} {
		rounds = append(rounds, &brokerRound{
			memory:    sendRound{rate: rates[0], broker: 2},
			durable:   sendRound{rate: rates[1], broker: 5},
			commitMs:  0.25,
			perCommit: 100,
		})
	}
	r := &BrokerResult{Lines: []*brokerLine{newBrokerLine(allBrokerClients[0], rounds)}}
	l := r.Lines[0]
	if l.Ratio != 0.4 || l.RatioSpread != [2]float64{0.3, 0.5} || l.MemoryPerSecond != 100 || l.DurablePerSecond != 50 {
		t.Errorf("line = %+v, want the median of the ratios 0.5, 0.3 and 0.4, and of the rates", l)
	}
	figures := r.Figures()
	if f := figures[0]; f.Name != "broker.one-batches" || *f.Target != 0.4 || !f.AtLeast || !*f.Met {
		t.Errorf("figure = %+v, want a target of at least 0.4, met", f)
	}
	if f := figures[1]; f.Value != 0.25 || f.Unit != "ms" {
		t.Errorf("figure = %+v, want the time of a commit", f)
	}
}
