// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"reflect"
	"testing"
)

// Every filter that is read is printed as text that reads as the same filter. Its evaluation on a
// message ends.
func FuzzFilter(f *testing.F) {
	for _, group := range conditions {
		for _, text := range group.texts {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := ParseFilter(text, params)
		if err != nil {
			if filter != nil || err.Error() == "" {
				t.Fatalf("ParseFilter = %v, %q", filter, err)
			}
			return
		}
		again, err := parseFilter(filter.String(), params, 100*MaxLength)
		if err != nil {
			t.Fatalf("%q is printed as %q: %v", text, filter, err)
		}
		if !reflect.DeepEqual(again, filter) {
			t.Fatalf("%q is printed as %q, which is read as %q", text, filter, again)
		}
		_, _ = filter.Match(scene()) // an EvalError is as good as any answer
	})
}

func FuzzAction(f *testing.F) {
	for _, text := range []string{"SET a = 1; REMOVE b", "SET sys.Label = [x y] + 'z', SET a = newid()", "SET a = -(1 + @yes) % 2 SET b = p('a')", "REMOVE sys.To"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		action, err := ParseAction(text, params)
		if err != nil {
			return
		}
		again, err := parseAction(action.String(), params, 100*MaxLength)
		if err != nil {
			t.Fatalf("%q is printed as %q: %v", text, action, err)
		}
		if !reflect.DeepEqual(again, action) {
			t.Fatalf("%q is printed as %q, which is read as %q", text, action, again)
		}
		_ = action.Apply(scene()) // it may fail, as long as it ends
	})
}
