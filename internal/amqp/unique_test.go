// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"fmt"
	"testing"
)

func rawOf(t testing.TB, v any) Raw {
	t.Helper()
	b, err := AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestARepeatedKeyIsFoundWhereverItStands(t *testing.T) {
	many := func(n int) (m Map) {
		for i := range n {
			m = append(m, Pair{Key: fmt.Sprint("key-", i), Value: int32(i)})
		}
		return m
	}
	for name, c := range map[string]struct {
		value  any
		top    string // the key that the map itself repeats
		within string // the key that it or anything in it repeats
	}{
		"nothing":                       {nil, "", ""},
		"no map":                        {"text", "", ""},
		"an empty map":                  {Map{}, "", ""},
		"each once":                     {Map{{Key: "a", Value: "a"}, {Key: "b", Value: "a"}}, "", ""},
		"twice":                         {Map{{Key: "a", Value: "x"}, {Key: "b", Value: "y"}, {Key: "a", Value: "z"}}, "a", "a"},
		"as a string and as a symbol":   {Map{{Key: "a", Value: "x"}, {Key: Symbol("a"), Value: "y"}}, "a", "a"},
		"in another case":               {Map{{Key: "a", Value: "x"}, {Key: "A", Value: "y"}}, "", ""},
		"a number and its text":         {Map{{Key: "1", Value: "x"}, {Key: int32(1), Value: "y"}}, "", ""},
		"a number twice":                {Map{{Key: int64(7000), Value: "x"}, {Key: int64(7000), Value: "y"}}, string(rawOf(t, int64(7000))), string(rawOf(t, int64(7000)))},
		"the last of those on the heap": {append(many(fewKeys), Pair{Key: "key-0", Value: true}), "key-0", "key-0"},
		"both beyond the few":           {append(many(3*fewKeys), Pair{Key: fmt.Sprint("key-", 2*fewKeys), Value: true}), fmt.Sprint("key-", 2*fewKeys), fmt.Sprint("key-", 2*fewKeys)},
		"many, each once":               {many(3 * fewKeys), "", ""},
		"in a map of a map":             {Map{{Key: "a", Value: Map{{Key: "b", Value: "x"}, {Key: "b", Value: "y"}}}}, "", "b"},
		"in a map of a list of a list":  {Map{{Key: "a", Value: List{List{Map{{Key: "b", Value: "x"}, {Key: "b", Value: "y"}}}}}}, "", "b"},
		"in a map of an array":          {Map{{Key: "a", Value: Array{Map{{Key: "b", Value: "x"}}, Map{{Key: "c", Value: "x"}, {Key: "c", Value: "y"}}}}}, "", "c"},
		"in a described map":            {Map{{Key: "a", Value: Described{Descriptor: Symbol("x:y"), Value: Map{{Key: "b", Value: "x"}, {Key: "b", Value: "y"}}}}}, "", "b"},
		"in two maps":                   {List{Map{{Key: "b", Value: "x"}}, Map{{Key: "b", Value: "y"}}}, "", ""},
	} {
		raw := rawOf(t, c.value)
		if key, repeated := RepeatedKey(raw); string(key) != c.top || repeated != (c.top != "") {
			t.Errorf("%s: RepeatedKey = %q, %v; want %q", name, key, repeated, c.top)
		}
		if key, repeated := RepeatedKeyWithin(raw); string(key) != c.within || repeated != (c.within != "") {
			t.Errorf("%s: RepeatedKeyWithin = %q, %v; want %q", name, key, repeated, c.within)
		}
	}
}

// Every message that is watched is looked at.
func TestFindingRepeatedKeysAllocatesNothing(t *testing.T) {
	var m Map
	for i := range fewKeys {
		m = append(m, Pair{Key: fmt.Sprint("key-", i), Value: "value"})
	}
	raw := rawOf(t, m)
	if n := testing.AllocsPerRun(100, func() {
		if _, repeated := RepeatedKey(raw); repeated {
			t.Error("a key is repeated")
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d keys, want 0", n, fewKeys)
	}
}

// MapLookup finds every value, where no key is repeated.
func FuzzRepeatedKeys(f *testing.F) {
	f.Add([]byte(rawOf(f, Map{{Key: "a", Value: "x"}, {Key: Symbol("a"), Value: "y"}})))
	f.Add([]byte(rawOf(f, Map{{Key: "a", Value: List{Map{{Key: "b", Value: int32(1)}}}}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, within := RepeatedKeyWithin(b)
		_, repeated := RepeatedKey(b)
		if repeated && !within {
			t.Fatalf("% x repeats a key, and nothing within it does", b)
		}
		r := NewReader(b)
		m, isMap := r.Value().(Map)
		if r.Err() != nil || !isMap {
			return
		}
		seen := map[string]int{}
		for _, p := range m {
			switch k := p.Key.(type) {
			case string:
				seen[k]++
			case Symbol:
				seen[string(k)]++
			}
		}
		for key, n := range seen {
			if n > 1 && !repeated {
				t.Fatalf("%q is stated %d times in % x, and that is not found", key, n, b)
			}
		}
	})
}
