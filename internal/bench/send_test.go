// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// someRounds are three rounds on each way: each way's rates, and the processor time of
// the process between.
func someRounds(haproxy bool) map[string][]sendRound {
	rounds := map[string][]sendRound{}
	cost := map[string]float64{"direct": 0, "haproxy": 6, "unmonitored": 10, "each": 10, "slot": 10}
	for w, rates := range map[string][3]float64{
		"direct": {100, 1000, 10}, "haproxy": {80, 1000, 5}, "unmonitored": {88, 990, 5},
		"each": {50, 900, 8}, "slot": {40, 800, 4},
	} {
		for _, rate := range rates {
			if w != "haproxy" || haproxy {
				rounds[w] = append(rounds[w],
					sendRound{rate: rate, client: 6, sidecar: cost[w], broker: 4})
			}
		}
	}
	return rounds
}

func TestRatiosAreOfOneRound(t *testing.T) {
	l := newSendLine(clientKinds[0], wayEach, someRounds(true))
	if l.Ratio != 0.8 || l.RatioSpread != [2]float64{0.5, 0.9} || l.Cost != 0.5 ||
		l.MessagesPerSecond != 50 || l.SidecarMicros != 10 {
		t.Errorf("line = %+v, want the median of the ratios 0.5, 0.9 and 0.8, half as many for the same processor time, 50 a second", l)
	}
	if *l.HAProxyRatio != 0.9 || *l.HAProxyRatioSpread != [2]float64{0.625, 1.6} ||
		*l.HAProxyCost != 0.8 {
		t.Errorf("against HAProxy %v %v %v, want the median of 0.625, 0.9 and 1.6, and 16 µs ÷ 20 µs", *l.HAProxyRatio, *l.HAProxyRatioSpread, *l.HAProxyCost)
	}
}

// aSendResult is one kind of client, measured on all ways.
func aSendResult(kind string, haproxy bool) *SendResult {
	r, rounds := &SendResult{}, someRounds(haproxy)
	if version := "2.6.12"; haproxy {
		r.HAProxy = &version
	}
	for _, k := range clientKinds {
		for _, w := range []way{wayDirect, wayHAProxy, wayUnmonitored, wayEach, waySlot} {
			if k.name == kind && rounds[w.name] != nil {
				r.Lines = append(r.Lines, newSendLine(k, w, rounds))
			}
		}
	}
	return r
}

func TestSendsAreHeldAgainstHAProxy(t *testing.T) {
	got := map[string]float64{} // targets
	for _, f := range aSendResult("single", true).Figures() {
		if f.Target != nil {
			got[f.Name] = *f.Target
		}
	}
	want := map[string]float64{"send.single.unmonitored.haproxy": 1, "send.single.slot.haproxy": 0.8}
	if len(got) != len(want) {
		t.Errorf("targets %v, want %v", got, want)
	}
	for name, target := range want {
		if got[name] != target {
			t.Errorf("target of %s = %v, want %v", name, got[name], target)
		}
	}
	for _, f := range aSendResult("rest", true).Figures() {
		if f.Target != nil {
			t.Errorf("%s has a target of %v, want none: HAProxy does not read requests", f.Name,
				*f.Target)
		}
	}
}

func TestTheTableOfAllSaysHowToInstallHAProxy(t *testing.T) {
	for _, installed := range []bool{true, false} {
		var table bytes.Buffer
		plans := allPlans{{"send", &aPlan{result: aSendResult("single", installed)}}}
		r, err := plans.Measure(t.Context(), &Program{}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(table.String(), haproxyHint) == installed {
			t.Errorf("installed: %t, table = %s", installed, table.String())
		}
	}
}

func TestWithoutHAProxyItsWayIsLeftOutAndTheTableSaysWhy(t *testing.T) {
	r := aSendResult("single", false)
	var table, printed bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if text := table.String(); strings.Count(text, haproxyHint) != 1 ||
		!strings.Contains(text, "unmonitored sends ÷ direct, single") {
		t.Errorf("table = %s\nwant a hint and the ratios to direct", text)
	}
	if err := WriteJSON(&printed, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		HAProxy any
		Lines   []map[string]any
	}
	if err := json.Unmarshal(printed.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Lines) != 4 || got.HAProxy != nil {
		t.Fatalf("JSON = %s, want four ways and no version of HAProxy", printed.String())
	}
	for _, l := range got.Lines {
		for _, field := range []string{"haproxyRatio", "haproxyRatioSpread", "haproxyCost"} {
			if v, ok := l[field]; !ok || v != nil {
				t.Errorf("%s of %v = %v, want null", field, l["way"], v)
			}
		}
	}
}
