// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessagesThatCostSomethingAreEachCountedOnce(t *testing.T) {
	ids := func(numbers ...int) (all []string) {
		for _, i := range numbers {
			all = append(all, messageID(i))
		}
		return all
	}
	letters := func(numbers ...int) (all []deadLetter) {
		for _, i := range numbers {
			all = append(all, deadLetter{MessageID: messageID(i)})
		}
		return all
	}
	c := costCase{Sent: 7}
	// 0 and 1 are met, 2 and 3 missed, 4 is both, 5 nowhere, 6 has two notifications.
	notices := map[string]notice{}
	for _, id := range ids(2, 3, 4, 6, 6) {
		notices[id] = notice{count: notices[id].count + 1}
	}
	c.tally(outcomesOf(ids(0, 1, 4), notices, letters(2, 3, 4, 6)))
	want := costCase{Sent: 7, Met: 3, Missed: 4, Lost: 1, Twice: 2}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
	r := &CostResult{Cases: []*costCase{{Sent: 7, Met: 5, Missed: 2}}}
	if err := r.Verdict(); err != nil {
		t.Errorf("verdict where consumers were too slow = %v, want none", err)
	}
	r.Cases = append(r.Cases, &c)
	if err := r.Verdict(); err == nil || err.Error() != "of 7 messages 1 were lost\nof 7 messages 2 came twice or had two notifications" {
		t.Errorf("verdict = %v, want what is wrong with the second", err)
	}
}
