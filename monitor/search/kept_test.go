// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/link"
)

// numbered returns messages with these sequence numbers, in this order.
func numbered(numbers ...int64) (page []*link.Message) {
	for _, n := range numbers {
		page = append(page, &link.Message{SequenceNumber: n, EnqueuedTime: noon.Add(time.Duration(n) * time.Millisecond)})
	}
	return page
}

func numbersOf(page []*link.Message) (numbers []int64) {
	for _, m := range page {
		numbers = append(numbers, m.SequenceNumber)
	}
	return numbers
}

func TestKeptMessagesStandInTheirPages(t *testing.T) {
	var k Kept
	k.Add(numbered(40, 10, 30))
	k.Add(numbered(30, 20))
	for _, c := range []struct {
		what       string
		from       int64
		page, want []int64
	}{
		{"an empty page is the end of the queue", 0, nil, []int64{10, 20, 30, 40}},
		{"from a number on", 20, nil, []int64{20, 30, 40}},
		{"behind all", 41, nil, nil},
		{"up to the end of the page, because more may stand behind it", 0, []int64{15, 25}, []int64{10, 15, 20, 25}},
		{"what is still there stands there once", 10, []int64{10, 30}, []int64{10, 20, 30}},
		{"a page that begins behind all", 50, []int64{50, 60}, []int64{50, 60}},
	} {
		all, _ := k.with(numbered(c.page...), c.from)
		if got := numbersOf(all); !slices.Equal(got, c.want) {
			t.Errorf("%s: page %v from %d shows %v, want %v", c.what, c.page, c.from, got, c.want)
		}
	}
	recreated := numbered(20)
	recreated[0].EnqueuedTime = noon.Add(time.Hour)
	if got, _ := k.with(recreated, 20); len(got) != 2 {
		t.Errorf("a kept message and another one with its number show as %v, want both", numbersOf(got))
	}
	k.Clear()
	if got, _ := k.with(nil, 0); len(got) != 0 {
		t.Errorf("after Clear %v are kept, want none", numbersOf(got))
	}
}

func TestKeptMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Kept
		all := func() int { kept, _ := k.with(nil, 0); return len(kept) }
		next := int64(0)
		add := func(n int) {
			page := make([]int64, n)
			for i := range page {
				next++
				page[i] = next
			}
			k.Add(numbered(page...))
		}
		add(1000)
		time.Sleep(keptFor / 2) // fake
		add(1000)
		time.Sleep(keptFor/2 + time.Second) // fake
		add(10)
		if n := all(); n != 1010 {
			t.Errorf("%d messages are kept, want the 1010 of the last %v", n, keptFor)
		}
		for range 8 {
			time.Sleep(time.Second) // fake
			add(maxKept / 4)
			if n := all(); n > maxKept {
				t.Errorf("%d messages are kept, want %d at most", n, maxKept)
			}
		}
		if page, _ := k.with(nil, next); len(page) != 1 {
			t.Error("the latest message is not kept")
		}
	})
}

func TestKeptMessagesThatWereUsedAreKeptForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Kept
		messages := numbered(10, 20, 30)
		k.Add(messages)
		if all, first := k.with(numbered(5), 0); len(all) != 1 || len(first) != 1 {
			t.Errorf("a page up to 5 shows %v, want 5 alone", numbersOf(all))
		}
		all, first := k.with(numbered(15, 20), 10)
		if !slices.Equal(numbersOf(all), []int64{10, 15, 20}) || len(first) != 3 {
			t.Errorf("a page from 10 to 20 shows %v, for the first time %v; want 10, 15 and 20", numbersOf(all), numbersOf(first))
		}
		all, first = k.with(nil, 0)
		if !slices.Equal(numbersOf(all), []int64{10, 20, 30}) || len(first) != 2 {
			t.Errorf("an empty page shows %v, for the first time %v; want all, and not 10 again", numbersOf(all), numbersOf(first))
		}
		k.Use(IdentityOf(messages[1]))
		k.Use(IdentityOf(numbered(40)[0])) // that was never kept
		if all := k.all(); len(all) != 3 {
			t.Errorf("right after Use %v are kept, want all: the search may be repeated", numbersOf(all))
		}
		time.Sleep(usedFor + time.Second) // fake
		if all := k.all(); !slices.Equal(numbersOf(all), []int64{10, 30}) {
			t.Errorf("%v after 20 was used %v are kept, want the others", usedFor+time.Second, numbersOf(all))
		}
		time.Sleep(keptFor) // fake
		if all := k.all(); len(all) != 0 {
			t.Errorf("after more than %v %v are kept, want none", keptFor, numbersOf(all))
		}
	})
}

func TestKeptMessagesAreFoundByIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Kept
		kept := numbered(10, 20)
		k.Add(kept)
		other := numbered(20) // of a queue that was recreated since
		other[0].EnqueuedTime = noon.Add(time.Hour)
		k.Add(other)
		there, recreated := &Want{Identity: IdentityOf(kept[1])}, &Want{Identity: IdentityOf(other[0])}
		absent, unknown := &Want{Identity: Identity{Number: 10, Enqueued: 1}}, &Want{}
		left := k.Take([]*Want{absent, there, recreated, unknown})
		if len(left) != 2 || left[0] != absent || left[1] != unknown || absent.Found != nil || unknown.Found != nil {
			t.Errorf("%d wants are left, want those for no kept message: %+v", len(left), left)
		}
		if there.Found != kept[1] || recreated.Found != other[0] {
			t.Errorf("found %+v and %+v, want each the message with its identity", there.Found, recreated.Found)
		}
		time.Sleep(keptFor + time.Millisecond)
		if late := (&Want{Identity: IdentityOf(kept[0])}); len(k.Take([]*Want{late})) != 1 || late.Found != nil {
			t.Errorf("a message that was read more than %v ago is found: %+v", keptFor, late.Found)
		}
	})
}
